/* Tokenizers: the llama2.c scheme against a plain quadratic one and recorded tokens; bytes. */
#include "core/artifact/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/buf.h"

#define DATA "../shared/data/stories260K/"

/* --- a vocabulary of our own ------------------------------------------------------------------ */

#define MAX_PIECES 520
#define MAX_PIECE  12

static struct {
	char text[MAX_PIECE + 1];
	float score;
} vocab[MAX_PIECES];
static uint32_t n_vocab;

static uint32_t random_state = 12345;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % n;
}

static int plain_find(const char *text)
{
	for (uint32_t i = 0; i < n_vocab; i++)
		if (strcmp(vocab[i].text, text) == 0)
			return (int)i;
	return -1;
}

static void add(const char *text, float score)
{
	strcpy(vocab[n_vocab].text, text);
	vocab[n_vocab++].score = score;
}

static void put_u32(struct buf *b, uint32_t v)
{
	const unsigned char bytes[4] = { v & 255, v >> 8 & 255, v >> 16 & 255, v >> 24 };

	buf_put(b, bytes, 4);
}

static void put_float(struct buf *b, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, 4);
	put_u32(b, bits);
}

/* The present vocabulary as a tokenizer file. */
static void write_file(struct buf *b)
{
	put_u32(b, MAX_PIECE);
	for (uint32_t i = 0; i < n_vocab; i++) {
		put_float(b, vocab[i].score);
		put_u32(b, (uint32_t)strlen(vocab[i].text));
		buf_puts(b, vocab[i].text);
	}
}

static void begin_vocab(void)
{
	char text[8];

	n_vocab = 0;
	add("<unk>", 0);
	add("\n<s>\n", 0);
	add("\n</s>\n", 0);
	for (unsigned i = 0; i < 256; i++) {
		snprintf(text, sizeof text, "<0x%02X>", i);
		add(text, 0);
	}
}

/* Letters, a two-byte character and random joins of what is there, with many equal scores. */
static void random_vocab(void)
{
	static const char *const letters[] = { " ", "a", "b", "c", "\xc3\xa9" };

	begin_vocab();
	for (size_t i = 0; i < 5; i++)
		add(letters[i], -5);
	add("<0xFF>a", 3); /* the scheme joins the names of byte tokens too */
	while (n_vocab < 330) {
		char text[2 * MAX_PIECE + 1];

		snprintf(text, sizeof text, "%s%s", vocab[259 + random_below(n_vocab - 259)].text,
			vocab[259 + random_below(n_vocab - 259)].text);
		if (strlen(text) <= MAX_PIECE && plain_find(text) < 0)
			add(text, random_below(20) == 0 ? -2e10f : -(float)random_below(4));
	}
}

/* The scheme, word for word. */
static size_t plain_encode(const char *text, size_t len, int32_t *out)
{
	size_t n = 0;

	if (len)
		out[n++] = plain_find(" ");
	for (size_t i = 0; i < len;) {
		char c[5] = { text[i] };
		size_t k = 1;
		int id;

		while (k < 4 && i + k < len && (text[i + k] & 0xc0) == 0x80) {
			c[k] = text[i + k];
			k++;
		}
		id = plain_find(c);
		if (id >= 0)
			out[n++] = id;
		else
			for (size_t j = 0; j < k; j++)
				out[n++] = (unsigned char)c[j] + 3;
		i += k;
	}
	for (;;) {
		float best = -1e10f;
		int best_id = -1;
		size_t best_at = 0;

		for (size_t i = 0; i + 1 < n; i++) {
			char both[2 * MAX_PIECE + 1];
			int id;

			snprintf(both, sizeof both, "%s%s", vocab[out[i]].text,
				vocab[out[i + 1]].text);
			id = strlen(both) > MAX_PIECE ? -1 : plain_find(both);
			if (id >= 0 && vocab[id].score > best) {
				best = vocab[id].score;
				best_id = id;
				best_at = i;
			}
		}
		if (best_id < 0)
			return n;
		out[best_at] = best_id;
		n--;
		memmove(out + best_at + 1, out + best_at + 2, (n - best_at - 1) * sizeof *out);
	}
}

static struct tokenizer *open_vocab(const struct tokenizer_spec *with)
{
	struct tokenizer_spec spec = *with;
	struct tokenizer *t = NULL;
	struct fault f = FAULT_NONE;
	AUTO_BUF struct buf file = BUF_INIT;

	spec.type = TOKENIZER_LLAMA2C;
	spec.vocab_size = n_vocab;
	write_file(&file);
	if (tokenizer_new(&spec, file.data, file.len, &t, &f))
		fail_msg("%s", f.reason);
	return t;
}

static void assert_encodes(const struct tokenizer *t, const char *text, size_t len,
	const int32_t *want, size_t n_want)
{
	int32_t *got = NULL;
	size_t n = 0;

	assert_int_equal(tokenizer_encode(t, text, len, &got, &n), 0);
	assert_int_equal(n, n_want);
	if (n)
		assert_memory_equal(got, want, n * sizeof *got);
	assert_true(tokenizer_least(t, len) <= n);
	free(got);
}

static void decode(const struct tokenizer *t, int32_t prev, const int32_t *tokens, size_t n,
	struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		size_t len;
		const char *p = tokenizer_piece(t, prev, tokens[i], &len);

		buf_put(out, p, len);
		prev = tokens[i];
	}
}

static void tokenizer_encode__random_text__as_the_plain_scheme(void **state)
{
	static const char alphabet[] = " aaabbbcc\xc3\xa9\xa9\xff\x01";
	const struct tokenizer_spec spec = { 0 };

	(void)state;
	for (int v = 0; v < 20; v++) {
		struct tokenizer *t;

		random_vocab();
		t = open_vocab(&spec);
		for (int i = 0; i < 20; i++) {
			char text[40];
			int32_t want[41];
			size_t len = random_below(sizeof text + 1);

			for (size_t j = 0; j < len; j++)
				text[j] = alphabet[random_below(sizeof alphabet - 1)];
			assert_encodes(t, text, len, want, plain_encode(text, len, want));
		}
		tokenizer_free(t);
	}
}

static void tokenizer_piece__random_text__prints_it_again(void **state)
{
	static const char alphabet[] = " abc\xc3\xa9\xff\x01\n";
	const struct tokenizer_spec spec = { 0 };
	struct tokenizer *t;

	(void)state;
	random_vocab();
	/* That one piece spells a byte token's name, which printing rightly does not undo. */
	strcpy(vocab[plain_find("<0xFF>a")].text, "<0xFF>b!");
	t = open_vocab(&spec);
	for (int i = 0; i < 100; i++) {
		char text[60];
		size_t n, len = 1 + random_below(sizeof text);
		int32_t *tokens;
		AUTO_BUF struct buf out = BUF_INIT;

		for (size_t j = 0; j < len; j++)
			text[j] = alphabet[random_below(sizeof alphabet - 1)];
		assert_int_equal(tokenizer_encode(t, text, len, &tokens, &n), 0);
		decode(t, 1, tokens, n, &out);
		assert_int_equal(out.len, len);
		assert_memory_equal(out.data, text, len);
		free(tokens);
	}
	tokenizer_free(t);
}

static void tokenizer_encode__by_hand__leftmost_of_equals(void **state)
{
	const struct tokenizer_spec spec = { 0 };
	struct tokenizer *t;

	(void)state;
	begin_vocab();
	add(" ", -9);  /* 259 */
	add("a", -9);  /* 260 */
	add("aa", -1); /* 261 */
	add(" a", -2); /* 262 */
	t = open_vocab(&spec);
	/* " " a a a a: aa first and leftmost, twice; then " " cannot join. */
	assert_encodes(t, "aaaa", 4, (const int32_t[]){ 259, 261, 261 }, 3);
	assert_encodes(t, "aaa", 3, (const int32_t[]){ 259, 261, 260 }, 3);
	assert_encodes(t, "a", 1, (const int32_t[]){ 262 }, 1);
	assert_encodes(t, "", 0, NULL, 0);
	/* NUL and an unknown character go byte by byte, behind the leading space. */
	assert_encodes(t, "\0", 1, (const int32_t[]){ 259, 3 }, 2);
	assert_encodes(t, "\xe2\x82\xac", 3, (const int32_t[]){ 259, 229, 133, 175 }, 4);
	tokenizer_free(t);
}

static void tokenizer_encode__prefix_and_suffix__around_the_text(void **state)
{
	int32_t prefix[] = { 1 }, suffix[] = { 2, 5 };
	const struct tokenizer_spec spec = { .prefix = prefix,
		.n_prefix = 1,
		.suffix = suffix,
		.n_suffix = 2 };
	struct tokenizer *t;

	(void)state;
	begin_vocab();
	add(" ", 0);
	add("a", 0);
	t = open_vocab(&spec);
	assert_encodes(t, "a", 1, (const int32_t[]){ 1, 259, 260, 2, 5 }, 5);
	assert_encodes(t, "", 0, (const int32_t[]){ 1, 2, 5 }, 3);
	assert_int_equal(tokenizer_least(t, 0), 3);
	assert_int_equal(tokenizer_least(t, 1), 4);
	assert_int_equal(tokenizer_least(t, 13), 6); /* the longest piece has 6 bytes */
	tokenizer_free(t);
}

static void tokenizer_piece__special__by_rule(void **state)
{
	int32_t stop[] = { 2, 260 };
	const struct tokenizer_spec spec = { .stop = stop, .n_stop = 2 };
	struct tokenizer *t;
	size_t len = 9;

	(void)state;
	begin_vocab();
	add(" b", 0);
	add("end", 0);
	t = open_vocab(&spec);
	assert_int_equal(tokenizer_vocab(t), 261);
	assert_memory_equal(tokenizer_piece(t, -1, 259, &len), " b", 2);
	assert_int_equal(len, 2);
	assert_memory_equal(tokenizer_piece(t, 1, 259, &len), "b", 1);
	assert_int_equal(len, 1);
	assert_memory_equal(tokenizer_piece(t, 1, 3 + 0xff, &len), "\xff", 1);
	assert_int_equal(len, 1);
	assert_memory_equal(tokenizer_piece(t, 259, 3, &len), "\0", 1);
	assert_int_equal(len, 1);
	for (int32_t silent = 1; silent <= 2; silent++) {
		tokenizer_piece(t, 259, silent, &len);
		assert_int_equal(len, 0);
	}
	tokenizer_piece(t, 259, 260, &len);
	assert_int_equal(len, 0);
	tokenizer_piece(t, 259, 261, &len);
	assert_int_equal(len, 0);
	tokenizer_piece(t, 259, -1, &len);
	assert_int_equal(len, 0);
	assert_true(tokenizer_is_stop(t, 2));
	assert_true(tokenizer_is_stop(t, 260));
	assert_false(tokenizer_is_stop(t, 1));
	assert_false(tokenizer_is_stop(t, -1));
	tokenizer_free(t);
}

/* --- broken files ----------------------------------------------------------------------------- */

static int try_file(const char *bytes, size_t len, uint32_t size)
{
	const struct tokenizer_spec spec = { .type = TOKENIZER_LLAMA2C, .vocab_size = size };
	struct tokenizer *t = NULL;
	struct fault f = FAULT_NONE;
	int err = tokenizer_new(&spec, bytes, len, &t, &f);

	assert_int_equal(f.err, err);
	assert_true(err == 0 || (!t && f.reason[0]));
	tokenizer_free(t);
	return err;
}

static void tokenizer_new__every_truncation__refused(void **state)
{
	AUTO_BUF struct buf file = BUF_INIT;

	(void)state;
	begin_vocab();
	add(" ", 0);
	write_file(&file);
	assert_int_equal(try_file(file.data, file.len, 260), 0);
	for (size_t len = 0; len < file.len; len++) {
		char *exact = malloc(len ? len : 1); /* so that a read past the end is seen */

		memcpy(exact, file.data, len);
		assert_int_equal(try_file(exact, len, 260), -EINVAL);
		free(exact);
	}
	buf_put(&file, "x", 1);
	assert_int_equal(try_file(file.data, file.len, 260), -EINVAL);
}

static void tokenizer_new__wrong_contents__refused(void **state)
{
	static const struct {
		size_t offset;
		const char *bytes;
		size_t len;
	} damage[] = {
		{ 4, "\x00\x00\xc0\x7f", 4 },                    /* a score that is not a number */
		{ 4, "\x00\x00\x80\xff", 4 },                    /* an infinite one */
		{ 8, "\x00\x00\x00\x00", 4 },                    /* no length */
		{ 8, "\x0d\x00\x00\x00", 4 },                    /* longer than the greatest */
		{ 8, "\xff\xff\xff\xff", 4 }, { 13, "\x00", 1 }, /* NUL in the text */
		{ 0, "\x05\x00\x00\x00", 4 }, /* a greatest length that is too small */
		{ 52, "<0x01>", 6 },          /* a byte in another's place */
	};
	AUTO_BUF struct buf file = BUF_INIT;

	(void)state;
	begin_vocab();
	add(" ", 0);
	write_file(&file);
	assert_memory_equal(file.data + 52, "<0x00>", 6);
	for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
		AUTO_BUF struct buf bad = BUF_INIT;

		buf_put(&bad, file.data, file.len);
		memcpy(bad.data + damage[i].offset, damage[i].bytes, damage[i].len);
		assert_int_equal(try_file(bad.data, bad.len, 260), -EINVAL);
	}
	assert_int_equal(try_file(file.data, file.len, 259), -EINVAL);
	assert_int_equal(try_file(file.data, file.len, 261), -EINVAL);
	assert_int_equal(try_file(file.data, file.len, 10), -EINVAL);
	assert_int_equal(try_file(file.data, file.len, 0), -EINVAL);
	assert_int_equal(try_file(file.data, file.len, UINT32_MAX), -EINVAL);
}

static void tokenizer_new__ids_outside_the_vocabulary__refused(void **state)
{
	int32_t bad[] = { 256 }, negative[] = { -1 }, good[] = { 255 };
	struct tokenizer_spec spec = { .type = TOKENIZER_BYTES, .vocab_size = 256 };
	struct tokenizer *t = NULL;
	struct fault f = FAULT_NONE;

	(void)state;
	spec.stop = bad;
	spec.n_stop = 1;
	assert_int_equal(tokenizer_new(&spec, NULL, 0, &t, &f), -EINVAL);
	assert_string_equal(f.field, "stop");
	spec.stop = good;
	spec.prefix = negative;
	spec.n_prefix = 1;
	assert_int_equal(tokenizer_new(&spec, NULL, 0, &t, &f), -EINVAL);
	assert_string_equal(f.field, "prefix");
	spec.prefix = good;
	spec.vocab_size = 255;
	assert_int_equal(tokenizer_new(&spec, NULL, 0, &t, &f), -EINVAL);
	spec.type = TOKENIZER_NONE;
	assert_int_equal(tokenizer_new(&spec, NULL, 0, &t, &f), -EINVAL);
	assert_null(t);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void tokenizer_bytes__any_bytes__are_their_tokens(void **state)
{
	int32_t prefix[] = { 256 }, stop[] = { 257 };
	const struct tokenizer_spec spec = { .type = TOKENIZER_BYTES,
		.vocab_size = 258,
		.prefix = prefix,
		.n_prefix = 1,
		.stop = stop,
		.n_stop = 1 };
	AUTO_BUF struct buf out = BUF_INIT;
	struct tokenizer *t = NULL;
	int32_t *tokens;
	size_t n;

	(void)state;
	assert_int_equal(tokenizer_new(&spec, NULL, 0, &t, NULL), 0);
	assert_encodes(t, "A\0\xff", 3, (const int32_t[]){ 256, 65, 0, 255 }, 4);
	assert_encodes(t, "", 0, (const int32_t[]){ 256 }, 1);
	assert_int_equal(tokenizer_encode(t, "\xc3\xa9 x", 4, &tokens, &n), 0);
	decode(t, -1, tokens, n, &out);
	assert_string_equal(out.data, "\xc3\xa9 x");
	free(tokens);
	tokenizer_free(t);
}

/* --- the real vocabulary ---------------------------------------------------------------------- */

static void read_whole(const char *path, struct buf *out)
{
	char part[4096];
	FILE *file = fopen(path, "rb");
	size_t n;

	if (!file) {
		print_message("%s is not here\n", path);
		skip();
	}
	while ((n = fread(part, 1, sizeof part, file)) > 0)
		buf_put(out, part, n);
	fclose(file);
}

static struct tokenizer *open_stories(void)
{
	int32_t prefix[] = { 1 }, stop[] = { 1, 2 };
	const struct tokenizer_spec spec = { .type = TOKENIZER_LLAMA2C,
		.vocab_size = 512,
		.prefix = prefix,
		.n_prefix = 1,
		.stop = stop,
		.n_stop = 2 };
	AUTO_BUF struct buf file = BUF_INIT;
	struct tokenizer *t = NULL;

	read_whole(DATA "tok512.bin", &file);
	assert_int_equal(tokenizer_new(&spec, file.data, file.len, &t, NULL), 0);
	return t;
}

static void check_recording(const struct tokenizer *t, const cJSON *run)
{
	const char *prompt = cJSON_GetObjectItem(run, "prompt")->valuestring;
	const char *text = cJSON_GetObjectItem(run, "text")->valuestring;
	const cJSON *ids = cJSON_GetObjectItem(run, "token_ids"), *id;
	AUTO_BUF struct buf out = BUF_INIT;
	int32_t all[1024], *tokens;
	size_t n_all = 0, n;

	cJSON_ArrayForEach(id, ids) all[n_all++] = id->valueint;
	assert_int_equal(tokenizer_encode(t, prompt, strlen(prompt), &tokens, &n), 0);
	assert_true(n > 1 && n - 1 <= n_all);
	assert_int_equal(tokens[0], 1);
	assert_memory_equal(tokens + 1, all, (n - 1) * sizeof *all);
	free(tokens);
	decode(t, 1, all, n_all, &out);
	assert_string_equal(buf_text(&out), text);
}

static void tokenizer_encode__recorded_runs__same_tokens_and_text(void **state)
{
	struct tokenizer *t = open_stories();
	AUTO_BUF struct buf lines = BUF_INIT;
	int n = 0;

	(void)state;
	read_whole(DATA "greedy.jsonl", &lines);
	for (char *save, *line = strtok_r(lines.data, "\n", &save); line;
		line = strtok_r(NULL, "\n", &save)) {
		cJSON *run = cJSON_Parse(line);

		assert_non_null(run);
		check_recording(t, run);
		cJSON_Delete(run);
		n++;
	}
	assert_int_equal(n, 20);
	tokenizer_free(t);
}

static void tokenizer_encode__a_megabyte__in_seconds(void **state)
{
	const size_t len = 1 << 20;
	const struct tokenizer_spec spec = { 0 };
	struct tokenizer *t;
	char *text = malloc(len);
	int32_t *tokens;
	clock_t before;
	size_t n;

	(void)state;
	random_vocab();
	t = open_vocab(&spec);
	for (size_t i = 0; i < len; i++)
		text[i] = "abc "[random_below(4)];
	before = clock();
	assert_int_equal(tokenizer_encode(t, text, len, &tokens, &n), 0);
	assert_true(clock() - before < 20 * CLOCKS_PER_SEC);
	assert_true(n > len / MAX_PIECE && n < len);
	free(tokens);
	free(text);
	tokenizer_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokenizer_encode__random_text__as_the_plain_scheme),
		cmocka_unit_test(tokenizer_piece__random_text__prints_it_again),
		cmocka_unit_test(tokenizer_encode__by_hand__leftmost_of_equals),
		cmocka_unit_test(tokenizer_encode__prefix_and_suffix__around_the_text),
		cmocka_unit_test(tokenizer_piece__special__by_rule),
		cmocka_unit_test(tokenizer_new__every_truncation__refused),
		cmocka_unit_test(tokenizer_new__wrong_contents__refused),
		cmocka_unit_test(tokenizer_new__ids_outside_the_vocabulary__refused),
		cmocka_unit_test(tokenizer_bytes__any_bytes__are_their_tokens),
		cmocka_unit_test(tokenizer_encode__recorded_runs__same_tokens_and_text),
		cmocka_unit_test(tokenizer_encode__a_megabyte__in_seconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
