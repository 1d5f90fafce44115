/* npufs-admin's commands, called as its main() does. */
#include "core/admin/admin.h"

#include <errno.h>

#include "artifact_files.h"

#include "core/artifact/artifact.h"
#include "core/artifact/signature.h"
#include "core/control/approval_text.h"
#include "core/control/audit.h"

struct fixture {
	struct work w;
	char *out, *err;
};

static int set_up(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);

	work_make(&x->w);
	work_package(&x->w, "package");
	*state = x;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *x = *state;

	work_remove(&x->w);
	free(x->out);
	free(x->err);
	free(x);
	return 0;
}

#define ARGS_MAX 8

/* Words separated by blanks; "@name" is a path below the test's folder. Closes `out`. */
static int run_to(struct fixture *x, const char *line, FILE *out)
{
	char copy[256], *argv[ARGS_MAX + 2] = { (char *)"npufs-admin" }, *rest = copy;
	int argc = 1, code;
	size_t err_size;
	FILE *err;

	free(x->err);
	err = open_memstream(&x->err, &err_size);
	snprintf(copy, sizeof copy, "%s", line);
	for (char *word; (word = strsep(&rest, " ")) && argc <= ARGS_MAX; argc++)
		argv[argc] = word[0] == '@' ? (char *)work_path(&x->w, word + 1) : word;
	code = admin_main(line[0] ? argc : 1, argv, out, err);
	fclose(out);
	fclose(err);
	return code;
}

static int run(struct fixture *x, const char *line)
{
	size_t size;

	free(x->out);
	return run_to(x, line, open_memstream(&x->out, &size));
}

static void expect(struct fixture *x, const char *line, int code, const char *out, const char *err)
{
	int have = run(x, line);

	if (have != code)
		fail_msg("\"%s\": exit code %d: %s", line, have, x->err);
	if (!strstr(x->out, out))
		fail_msg("\"%s\" prints \"%s\", not \"%s\"", line, x->out, out);
	if (!strstr(x->err, err))
		fail_msg("\"%s\" complains \"%s\", not \"%s\"", line, x->err, err);
	if (code != ADMIN_OK)
		assert_true(x->err[0]);
	else
		assert_string_equal(x->err, "");
}

static void make_signed(struct fixture *x)
{
	static const char *const lines[] = { "key generate @key", "store init @store",
		"store trust @store @key.pub.pem",
		"artifact import package @package @store/models/mlp",
		"artifact sign @store/models/mlp @key.pem" };

	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		expect(x, lines[i], ADMIN_OK, "ok: ", "");
}

/* --- the whole way ---------------------------------------------------------------------------- */

static void admin__from_key_to_verified__ok(void **state)
{
	struct fixture *x = *state;
	char id[KEY_ID_SIZE], want[96];

	make_signed(x);
	assert_int_equal(run(x, "store trust @store @key.pub.pem"), ADMIN_OK);
	memcpy(id, strstr(x->out, "trusts key ") + strlen("trusts key "), KEY_ID_SIZE - 1);
	id[KEY_ID_SIZE - 1] = '\0';
	snprintf(want, sizeof want, "ok: mlp, 4 files, signed by %s\n", id);
	expect(x, "artifact verify @store mlp", ADMIN_OK, want, "");
	expect(x, "artifact show @store/models/mlp", ADMIN_OK,
		"program: mlp\n  input x float32[1,2]\n", "");
	expect(x, "artifact show @store/models/mlp", ADMIN_OK,
		"file 1: calbin/parts/weights.bin 7 bytes ", "");
}

static void key_generate__modes_and_no_overwriting(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf before = BUF_INIT, after = BUF_INIT;
	mode_t mask = umask(0);

	expect(x, "key generate @k", ADMIN_OK, "ok: key ", "");
	umask(mask);
	assert_int_equal(work_mode(&x->w, "k.pem"), 0600);
	assert_int_equal(work_mode(&x->w, "k.pub.pem"), 0644);
	work_read(&x->w, "k.pem", &before);
	expect(x, "key generate @k", ADMIN_FAILED, "", "is there already");
	assert_int_equal(unlink(work_path(&x->w, "k.pub.pem")), 0);
	expect(x, "key generate @k", ADMIN_FAILED, "", "k.pem is there already");
	assert_false(work_has(&x->w, "k.pub.pem"));
	work_read(&x->w, "k.pem", &after);
	assert_string_equal(before.data, after.data);
	assert_int_equal(unlink(work_path(&x->w, "k.pem")), 0);
	work_write_text(&x->w, "k.pub.pem", "other");
	expect(x, "key generate @k", ADMIN_FAILED, "", "k.pub.pem is there already");
	assert_false(work_has(&x->w, "k.pem"));
	expect(x, "key generate @no/k", ADMIN_FAILED, "", "to do: name a folder");
	expect(x, "key generate @", ADMIN_FAILED, "", "to do: give a name");
}

static void artifact_verify__damaged__file_named_to_the_administrator(void **state)
{
	struct fixture *x = *state;

	make_signed(x);
	work_write_text(&x->w, "store/models/mlp/golden/mlp.out", "\1\2\3\4");
	expect(x, "artifact verify @store mlp", ADMIN_FAILED, "",
		"npufs-admin: file number 4 of the manifest has other bytes than the manifest "
		"says\n"
		"  file: golden/mlp.out\n  to do: ");
	work_write_text(&x->w, "store/models/mlp/extra", "");
	expect(x, "artifact verify @store mlp", ADMIN_FAILED, "", "  file: extra\n");
	expect(x, "artifact sign @store/models/mlp @key.pem", ADMIN_FAILED, "", "  file: extra\n");
	expect(x, "artifact verify @store other", ADMIN_FAILED, "", "to do: use an alias");
	expect(x, "artifact verify @nowhere mlp", ADMIN_FAILED, "", "store init");
}

static void artifact_commands__what_cannot_be__told_why(void **state)
{
	struct fixture *x = *state;

	make_signed(x);
	expect(x, "artifact import package @package @store/models/mlp", ADMIN_FAILED, "",
		"there already");
	expect(x, "artifact import package @store @store/models/y", ADMIN_FAILED, "",
		"artifact.json");
	expect(x, "artifact import llama2c @package/README.md @package/README.md @store/models/y",
		ADMIN_FAILED, "", "to do: give a version-0 export");
	expect(x, "artifact show @store", ADMIN_FAILED, "", "cannot read the manifest");
	expect(x, "store trust @store @key.pem", ADMIN_FAILED, "", "no Ed25519 public key");
	expect(x, "store init @package/README.md", ADMIN_FAILED, "", "to do: ");
}

/* --- the audit trail -------------------------------------------------------------------------- */

static void write_trail(struct fixture *x)
{
	const struct cred who = { .uid = 7, .gid = 8, .pid = 9 };
	struct audit_record r = { .who = &who, .login = -1, .command = "unload" };
	struct fault f;
	struct audit *a;

	assert_int_equal(audit_open(work_path(&x->w, "store"), AUDIT_COMMANDS, &a, &f), 0);
	for (unsigned i = 0; i < AUDIT_DECISION_COUNT; i++) {
		r.decision = (enum audit_decision)i;
		assert_int_equal(audit_write(a, &r), 0);
	}
	audit_close(a);
}

static unsigned lines(const char *text)
{
	unsigned n = 0;

	while ((text = strchr(text, '\n')))
		n++, text++;
	return n;
}

static void audit__shown_and_verified(void **state)
{
	struct fixture *x = *state;

	expect(x, "audit verify @store", ADMIN_FAILED, "", "to do: ");
	expect(x, "audit show @store --jobs", ADMIN_FAILED, "", "audit-jobs: ");
	expect(x, "store init @store", ADMIN_OK, "ok: ", "");
	expect(x, "audit verify @store", ADMIN_OK, "ok: commands: no records\n", "");
	write_trail(x);
	expect(x, "audit verify @store", ADMIN_OK,
		"ok: commands: records 1 to 7 in 1 files\nlast hash: ", "");
	expect(x, "audit show @store", ADMIN_OK, "{\"seq\":1,", "");
	assert_int_equal(lines(x->out), 7); /* and the checkpoint */
	expect(x, "audit show @store --last 2", ADMIN_OK, "{\"seq\":6,", "");
	assert_int_equal(lines(x->out), 2);
	expect(x, "audit show --last 2 @store", ADMIN_OK, "\"decision\":\"approved\"", "");
	expect(x, "audit show @store --last 99", ADMIN_OK, "{\"seq\":1,", "");
	expect(x, "audit show @store --last two", ADMIN_FAILED, "", "--last needs a number");
	expect(x, "audit show @store --last -1", ADMIN_FAILED, "", "--last needs a number");
	expect(x, "audit show @store --last", ADMIN_USAGE, "", "or nothing follows it");
	expect(x, "audit show @store --las 1", ADMIN_USAGE, "", "[--last N]");
	expect(x, "audit show --jobs --last 1 @store 2", ADMIN_USAGE, "", "[--jobs] [--last N]");
	expect(x, "audit show @store --job", ADMIN_USAGE, "", "no option \"--job\"");
	expect(x, "audit show --last 1", ADMIN_USAGE, "", "arguments given: 0, needed: 1");
	expect(x, "audit verify @store --last 1", ADMIN_USAGE, "", "no option \"--last\"");
}

static void audit_verify__broken__file_line_and_byte(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	char want[64];

	expect(x, "store init @store", ADMIN_OK, "ok: ", "");
	write_trail(x);
	work_read(&x->w, "store/audit/00000001.jsonl", &b);
	memcpy(strstr(b.data, "\"decision\":\"done\""), "\"decision\":\"dome\"", 17);
	work_write(&x->w, "store/audit/00000001.jsonl", b.data, b.len);
	expect(x, "audit verify @store", ADMIN_FAILED, "", "broken in 00000001.jsonl, line 3: ");
	snprintf(want, sizeof want, "at byte: %zu\n",
		(size_t)(strstr(b.data, "{\"seq\":3") - b.data));
	expect(x, "audit verify @store", ADMIN_FAILED, "", want);
	assert_string_equal(x->out, "jobs: no trail is there\n");
}

/* --- approval --------------------------------------------------------------------------------- */

static void approve__any_folder__shown_signed_and_written_back(void **state)
{
	static const struct cred who = { .uid = 0, .gid = 0, .pid = 1 };
	struct fixture *x = *state;
	struct approval_facts facts = { .store = "00000000000000000000000000000001",
		.daemon = "00000000000000000000000000000002",
		.operation = "00000000000000000000000000000003",
		.command = "reset_device",
		.effect = "reset it",
		.reason = "stuck",
		.who = &who,
		.login = -1,
		.need = 2 };
	AUTO_BUF struct buf text = BUF_INIT, line = BUF_INIT, pem = BUF_INIT;
	const char *node = "mnt/control/approvals/00000000000000000000000000000003";
	struct signature sig;
	struct key *k;
	size_t n;

	expect(x, "key generate @key", ADMIN_OK, "ok: ", "");
	expect(x, "store init @store", ADMIN_OK, "ok: ", "");
	expect(x, "approver add @store @key.pub.pem", ADMIN_OK, " may approve in store ", "");
	expect(x, "approver add @store @key.pem", ADMIN_FAILED, "", "no Ed25519 public key");
	work_mkdir(&x->w, "mnt");
	work_mkdir(&x->w, "mnt/control");
	work_mkdir(&x->w, "mnt/control/approvals");
	assert_int_equal(approval_text_put(&facts, &text), 0);
	n = text.len;
	buf_puts(&text, "signed by 0123456789abcdef\n");
	work_write(&x->w, node, text.data, text.len);
#define APPROVE "approve @mnt 00000000000000000000000000000003"
	expect(x, APPROVE, ADMIN_FAILED, "", "add --key KEY.pem");
	expect(x, APPROVE " --key @key.pub.pem", ADMIN_FAILED, "", "this is a public key");
	expect(x, "approve @mnt ../../secret --key @key.pem", ADMIN_FAILED, "", "32 hex digits");
	expect(x, "approve @mnt 00000000000000000000000000000004 --key @key.pem", ADMIN_FAILED, "",
		"cannot read the operation");
	assert_int_equal(run_to(x, APPROVE " --key @key.pem", fopen("/dev/full", "w")),
		ADMIN_FAILED);
	assert_non_null(strstr(x->err, "could not be shown, so it was not signed"));
	work_read(&x->w, node, &line);
	assert_string_equal(buf_text(&line), buf_text(&text));
	buf_reset(&line);
	expect(x, APPROVE " --key @key.pem", ADMIN_OK, buf_text(&text), "");
	work_read(&x->w, node, &line);
	assert_true(signature_get(APPROVAL_WORD, line.data, line.len, &sig));
	work_read(&x->w, "key.pub.pem", &pem);
	assert_int_equal(key_from_public_pem(pem.data, pem.len, &k), 0);
	assert_int_equal(key_verify(k, text.data, n, sig.bytes, sizeof sig.bytes), 0);
	key_free(k);
	expect(x, APPROVE " --key @key.pem", ADMIN_FAILED, "", "to do: sign nothing");
	work_write(&x->w, "mnt/control/approvals/00000000000000000000000000000004", text.data,
		text.len);
	expect(x, "approve @mnt 00000000000000000000000000000004 --key @key.pem", ADMIN_FAILED, "",
		"the text of another operation");
}

/* --- output ----------------------------------------------------------------------------------- */

/* The second write is refused, all others are taken. */
static ssize_t refuse_second(void *count, const char *bytes, size_t n)
{
	(void)bytes;
	errno = ENOSPC;
	return ++*(int *)count == 2 ? 0 : (ssize_t)n;
}

static void admin__output_with_a_gap__code_1(void **state)
{
	char buffer[256];
	int count = 0;
	FILE *out = fopencookie(&count, "w", (cookie_io_functions_t){ .write = refuse_second });

	setvbuf(out, buffer, _IOFBF, sizeof buffer);
	assert_int_equal(run_to(*state, "--help", out), ADMIN_FAILED);
	assert_non_null(strstr(((struct fixture *)*state)->err, "cannot write the output"));
}

/* --- usage ------------------------------------------------------------------------------------ */

static void admin__wrong_usage__code_2_and_nearest_name(void **state)
{
	static const struct {
		const char *line, *err;
	} rows[] = {
		{ "", "usage: npufs-admin COMMAND" },
		{ "artifact", "artifact import llama2c WEIGHTS TOKENIZER STORE/models/ALIAS" },
		{ "artifcat verify a b", "did you mean \"artifact\"?" },
		{ "artifact verfiy a b",
			"no command \"artifact verfiy\"; did you mean \"artifact verify\"?" },
		{ "artifact import pakage a b", "did you mean \"artifact import package\"?" },
		{ "frobnicate", "no command \"frobnicate\"; see npufs-admin --help" },
		{ "store trust onlyone", "usage: npufs-admin store trust STORE KEY.pub.pem" },
		{ "store init a b", "arguments given: 2, needed: 1" },
		{ "store init -f", "no option \"-f\"" },
		{ "--version", "no command \"--version\"" },
	};
	struct fixture *x = *state;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		expect(x, rows[i].line, ADMIN_USAGE, "", rows[i].err);
}

static void admin__help__every_command_has_it(void **state)
{
	static const char *const commands[] = { "key generate", "store init", "store trust",
		"artifact import llama2c", "artifact import package", "artifact sign",
		"artifact verify", "artifact show", "audit verify", "audit show", "matrix",
		"approve", "approver add" };
	struct fixture *x = *state;
	char line[64], usage[96];

	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		snprintf(line, sizeof line, "%s --help", commands[i]);
		snprintf(usage, sizeof usage, "usage: npufs-admin %s ", commands[i]);
		expect(x, line, ADMIN_OK, usage, "");
		expect(x, "--help", ADMIN_OK, commands[i], "");
	}
	expect(x, "artifact import -h", ADMIN_OK, "artifact import package", "");
	assert_null(strstr(x->out, "artifact sign"));
	expect(x, "artifact sign a --help", ADMIN_OK, "usage: npufs-admin artifact sign", "");
}

static void matrix__arguments_and_options__taken_or_named(void **state)
{
	struct fixture *x = *state;

	make_signed(x);
	expect(x, "matrix", ADMIN_USAGE, "", "matrix STORE [MODEL] [-o OPTIONS]");
	expect(x, "matrix @store mlp more", ADMIN_USAGE, "", "arguments given: 3");
	expect(x, "matrix @store -o", ADMIN_USAGE, "", "no option \"-o\"");
	expect(x, "matrix @store -x", ADMIN_USAGE, "", "no option \"-x\"");
	expect(x, "artifact verify @store mlp -o device=sim", ADMIN_USAGE, "", "no option \"-o\"");
	expect(x, "matrix @store -o devise=sim", ADMIN_FAILED, "", "device");
	expect(x, "matrix @store -o device=smi", ADMIN_FAILED, "", "did you mean sim?");
	expect(x, "matrix @store -o fault=Wiat@1:nan", ADMIN_FAILED, "", "did you mean Wait?");
	expect(x, "matrix @store -o device=null,queue=3", ADMIN_FAILED, "", "no option \"queue\"");
	expect(x, "matrix @store nothing", ADMIN_FAILED, "Bail out!", "");
}

static void matrix__run__status_says_whether_a_case_failed(void **state)
{
	struct fixture *x = *state;

	make_signed(x);
	expect(x, "matrix @store -o device=null", ADMIN_OK, "\n1..", "");
	expect(x, "matrix @store -o device=null,fault=Apply@1:false", ADMIN_FAILED, "\nnot ok ",
		" cases failed\n");
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)

/* --- callables -------------------------------------------------------------------------------- */

static void callable__build_check_show__each_example(void **state)
{
	static const struct {
		const char *name, *checked, *shown;
	} rows[] = {
		/* call, const, arg, loop, and 16384 rounds of 8 */
		{ "add", "ok: add, 1 children, at most 131076 steps",
			"scalar: int32 n, at most 1048576\n" },
		{ "matmul", "ok: matmul, 1 children", "  fma v0, v1, s9, v0\n" },
		{ "softmax", "ok: softmax, 1 children", "  const s3, 0xff800000\n" },
	};
	struct fixture *x = *state;
	char line[128];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		snprintf(line, sizeof line, "callable build examples/callables/%s.json @image%zu",
			rows[i].name, i);
		expect(x, line, ADMIN_OK, "ok: ", "");
		expect(x, line, ADMIN_FAILED, "", "is there already");
		snprintf(line, sizeof line, "callable check @image%zu", i);
		expect(x, line, ADMIN_OK, rows[i].checked, "");
		snprintf(line, sizeof line, "callable show @image%zu", i);
		expect(x, line, ADMIN_OK, rows[i].shown, "");
	}
}

static void callable__wrong_files__said_why_and_nothing_written(void **state)
{
	struct fixture *x = *state;

	work_write_text(&x->w, "bad.json", "{\"format\":\"npufs-callable-1\"}");
	expect(x, "callable build @bad.json @image", ADMIN_FAILED, "", "missing");
	assert_false(work_has(&x->w, "image"));
	expect(x, "callable build @none.json @image", ADMIN_FAILED, "", "cannot read it");
	expect(x, "callable build examples/callables/add.json @none/image", ADMIN_FAILED, "",
		"cannot open the folder");
	expect(x, "callable check @bad.json", ADMIN_FAILED, "", "header");
	expect(x, "callable show @bad.json", ADMIN_FAILED, "", "header");
	expect(x, "callable check @none", ADMIN_FAILED, "", "cannot read it");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(admin__from_key_to_verified__ok),
		TEST(key_generate__modes_and_no_overwriting),
		TEST(artifact_verify__damaged__file_named_to_the_administrator),
		TEST(artifact_commands__what_cannot_be__told_why),
		TEST(audit__shown_and_verified),
		TEST(audit_verify__broken__file_line_and_byte),
		TEST(approve__any_folder__shown_signed_and_written_back),
		TEST(admin__output_with_a_gap__code_1),
		TEST(admin__wrong_usage__code_2_and_nearest_name),
		TEST(admin__help__every_command_has_it),
		TEST(matrix__arguments_and_options__taken_or_named),
		TEST(matrix__run__status_says_whether_a_case_failed),
		TEST(callable__build_check_show__each_example),
		TEST(callable__wrong_files__said_why_and_nothing_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
