/* An artifact from llama2.c's files. Everything is read and checked before a folder is made. */
#include "core/artifact/artifact_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact/artifact_build.h"
#include "core/artifact/import_golden.h"
#include "core/artifact/import_llama2c.h"
#include "core/artifact/tokenizer_llama2c.h"
#include "core/base/files.h"
#include "core/base/mem.h"

#define TOKENIZER_MAX_BYTES (256u << 20)

static int load(const char *path, uint64_t most, const char *what, struct buf *ret, struct fault *f)
{
	AUTO_CLOSE int fd = -1;
	int err = files_open_input(path, &fd);

	if (!err)
		err = files_read(fd, most, ret);
	if (err == -EFBIG)
		return fault_set(f, err, "give a smaller one", "%s is larger than %llu bytes", what,
			(unsigned long long)most);
	return err ? fault_set(f, err, "name a file that is there and readable",
			     "cannot read %s: %s", what, strerror(-err))
		   : 0;
}

static int check_tokenizer(const struct buf *file, uint32_t vocab, struct fault *f)
{
	struct llama2c *t;
	int err = llama2c_new(buf_text(file), file->len, vocab, &t, f);

	if (!err)
		llama2c_free(t);
	return err;
}

static int no_memory(struct fault *f)
{
	return fault_set(f, -ENOMEM, "free memory, then try again",
		"no memory to convert the model");
}

/* --- the package ------------------------------------------------------------------------------ */

static int add_made(struct artifact_build *b, const char *path,
	int (*make)(const struct llama2c_weights *w, struct buf *out),
	const struct llama2c_weights *w, struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT;

	if (make(w, &bytes) < 0)
		return no_memory(f);
	return artifact_build_file(b, path, bytes.data, bytes.len, f);
}

static int add_golden(struct artifact_build *b, const struct llama2c_weights *w,
	uint32_t *ret_valid, struct fault *f)
{
	AUTO_BUF struct buf in = BUF_INIT, out = BUF_INIT;
	int err = import_golden(w, &in, &out, ret_valid);

	if (err == -EDOM)
		return fault_set(f, -EINVAL, "export the model again",
			"the weights give logits that are not finite");
	if (err)
		return no_memory(f);
	err = artifact_build_file(b, "golden/prefill.in", in.data, in.len, f);
	return err ? err : artifact_build_file(b, "golden/prefill.out", out.data, out.len, f);
}

static int add_all(struct artifact_build *b, const struct llama2c_weights *w,
	const struct buf *tokenizer, struct fault *f)
{
	AUTO_BUF struct buf template = BUF_INIT;
	uint32_t valid;
	int err = add_made(b, "calbin/program.json", import_llama2c_program, w, f);

	if (!err)
		err = add_made(b, "calbin/weights.safetensors", import_llama2c_safetensors, w, f);
	if (!err)
		err = artifact_build_file(b, "tokenizer/tokenizer.bin", tokenizer->data,
			tokenizer->len, f);
	if (!err)
		err = add_golden(b, w, &valid, f);
	if (err)
		return err;
	if (import_llama2c_template(w, valid, &template) < 0)
		return no_memory(f);
	return artifact_build_manifest(b, template.data, template.len, f);
}

int artifact_import_llama2c(const char *weights, const char *tokenizer, const char *dest,
	struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT, pieces = BUF_INIT;
	struct llama2c_weights w;
	struct artifact_build b;
	int err = load(weights, LLAMA2C_MAX_BYTES, "the weights file", &bytes, f);

	if (!err)
		err = load(tokenizer, TOKENIZER_MAX_BYTES, "the tokenizer file", &pieces, f);
	if (!err)
		err = import_llama2c_parse(buf_text(&bytes), bytes.len, &w, f);
	if (!err)
		err = check_tokenizer(&pieces, w.vocab_size, f);
	if (!err)
		err = artifact_build_begin(&b, dest, f);
	if (err)
		return err;
	err = add_all(&b, &w, &pieces, f);
	return artifact_build_end(&b, err, f);
}
