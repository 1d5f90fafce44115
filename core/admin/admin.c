/* A command is one to three words and then its arguments; one in brackets may be left out. The words are matched one by one against
 * the table, so what is wrong is known to the word: of those that would fit in its place the
 * nearest is named. */
#include "core/admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/mem.h"

#define NAME      "npufs-admin"
#define WORDS_MAX 3
#define ARGS_MAX  3

struct command {
	const char *words[WORDS_MAX + 1]; /* NULL-ended */
	const char *args[ARGS_MAX + 1];   /* likewise; last perhaps options: "[--last N]" */
	int (*run)(const struct admin_call *c);
	const char *summary, *help;
};

static const struct command commands[] = {
	{ { "key", "generate" }, { "PREFIX" }, admin_key_generate, "make a key to sign with",
		"Writes the private key to PREFIX.pem (mode 0600), the public one to\n"
		"PREFIX.pub.pem. Nothing is overwritten. Keep the private key away from the\n"
		"machine that mounts the store.\n" },
	{ { "store", "init" }, { "STORE" }, admin_store_init, "make the folders of a store",
		"Makes STORE with models, trust, approvers, evidence, jobs and audit. What is\n"
		"there already stays, and loses permissions it should not have.\n" },
	{ { "store", "trust" }, { "STORE", "KEY.pub.pem" }, admin_store_trust,
		"let a key's owner sign artifacts for a store",
		"Puts the public key into STORE/trust as KEYID.pem. To end the trust, remove\n"
		"that file.\n" },
	{ { "approver", "add" }, { "STORE", "KEY.pub.pem" }, admin_approver_add,
		"let a key's owner approve destructive commands",
		"Puts the public key into STORE/approvers as KEYID.pem. To end it, remove that\n"
		"file: signatures of that key, also those given, then count no more.\n" },
	{ { "approve" }, { "MOUNT", "ID", "[--key KEY.pem]" }, admin_approve,
		"sign a command that waits for approval",
		"Shows MOUNT/control/approvals/ID, all of which is signed with the private key,\n"
		"and writes the signature into it. The last that is needed runs the command: its\n"
		"error is then told here.\n" },
	{ { "jobs", "list" }, { "STORE" }, admin_jobs_list, "list what STORE/jobs holds",
		"One line each: number, job, state, uid, bytes, path below jobs/. A daemon may "
		"run\n"
		"meanwhile. \"damaged\" is what its next start sets aside.\n" },
	{ { "jobs", "get" }, { "STORE", "NUMBER", "PART" }, admin_jobs_get,
		"write a request or its result to the output",
		"NUMBER is the first of a line of \"jobs list\", PART is request, out or "
		"stream.\n" },
	{ { "audit", "verify" }, { "STORE" }, admin_audit_verify,
		"check that both audit trails are whole",
		"Walks the chains of STORE/audit and STORE/audit-jobs and tells the first break\n"
		"of each: file, line, byte. A daemon may run meanwhile. What is signed is\n"
		"verified with daemon.pub.pem; that the newest records and the head were both\n"
		"put back does not show: compare the last hash with one that was kept\n"
		"elsewhere, or with what syslog has.\n" },
	{ { "audit", "show" }, { "STORE", "[--jobs]", "[--last N]" }, admin_audit_show,
		"print the audit trail of commands, or of jobs",
		"One JSON object a line, oldest first; N: only so many of the newest. Nothing is\n"
		"verified.\n" },
	{ { "artifact", "import", "llama2c" }, { "WEIGHTS", "TOKENIZER", "STORE/models/ALIAS" },
		admin_artifact_import_llama2c, "make an artifact from llama2.c's files",
		"WEIGHTS is a version-0 export with float weights, TOKENIZER its tokenizer file.\n"
		"A golden run is computed on the host, for the device to be checked against. The\n"
		"folder must not be there yet; it appears whole or not at all. Sign it next.\n" },
	{ { "artifact", "import", "package" }, { "DIR", "STORE/models/ALIAS" },
		admin_artifact_import_package, "make an artifact from a package folder",
		"DIR has artifact.json, the manifest without its files, and the folders calbin,\n"
		"tokenizer and golden, which are copied; the manifest then lists each file with\n"
		"size and SHA-256. The folder must not be there yet; it appears whole or not at\n"
		"all. Sign it next.\n" },
	{ { "artifact", "sign" }, { "DIR", "KEY.pem" }, admin_artifact_sign, "sign an artifact",
		"DIR is STORE/models/ALIAS. The files are first checked against the manifest.\n"
		"The signature in manifest.sig is over the bytes of manifest.json.\n" },
	{ { "artifact", "verify" }, { "STORE", "ALIAS" }, admin_artifact_verify,
		"check an artifact as the daemon does",
		"Checks owners and modes, the signature by a key of STORE/trust, each file.\n" },
	{ { "artifact", "show" }, { "DIR" }, admin_artifact_show,
		"print what an artifact's manifest says",
		"DIR is STORE/models/ALIAS. The signature is not checked.\n" },
	{ { "callable", "build" }, { "SPEC.json", "OUT" }, admin_callable_build,
		"make the image of a callable",
		"SPEC.json has the arguments, the orchestration and the children as text, one\n"
		"instruction a line. What check would refuse is not written. OUT must not be\n"
		"there yet.\n" },
	{ { "callable", "check" }, { "FILE" }, admin_callable_check,
		"check an image as a prepare does",
		"Sizes, offsets, names, ids and every program; the first thing that is wrong is\n"
		"told with its byte.\n" },
	{ { "callable", "show" }, { "FILE" }, admin_callable_show, "print what an image holds",
		"Arguments, the orchestration and the children, their programs as text.\n" },
	{ { "matrix" }, { "STORE", "[MODEL]", "[-o OPTIONS]" }, admin_matrix,
		"run the device contract's test matrix on a device",
		"With every model of STORE, or MODEL. The output is TAP 13, a line a case. No "
		"daemon\n"
		"may use the device meanwhile. Of the mount's options there are device, threads,\n"
		"kv_sequences, sim_delay and fault.\n" },
};

/* --- texts ------------------------------------------------------------------------------------ */

static void put_list(FILE *to, const char *const *list)
{
	for (; *list; list++)
		fprintf(to, " %s", *list);
}

static void put_usage(FILE *to, const struct command *c)
{
	fprintf(to, "usage: " NAME);
	put_list(to, c->words);
	put_list(to, c->args);
	fputc('\n', to);
}

static void put_command(FILE *to, const struct command *c)
{
	fprintf(to, " ");
	put_list(to, c->words);
	put_list(to, c->args);
	fprintf(to, "\n      %s\n", c->summary);
}

/* The commands that begin with the first `n` words of `words`. */
static bool begins_with(const struct command *c, char **words, int n)
{
	for (int i = 0; i < n; i++)
		if (!c->words[i] || strcmp(c->words[i], words[i]) != 0)
			return false;
	return true;
}

static int put_commands(FILE *to, char **words, int n, int code)
{
	fprintf(to, "usage: " NAME " COMMAND ARGUMENTS\n\ncommands:\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (begins_with(&commands[i], words, n))
			put_command(to, &commands[i]);
	fprintf(to,
		"\n" NAME " COMMAND --help says more of one. "
		"Exit codes: 0 done, 1 a check or operation failed, 2 usage.\n");
	return code;
}

static int put_help(FILE *to, const struct command *c)
{
	put_usage(to, c);
	fprintf(to, "\n%s.\n\n%s", c->summary, c->help);
	return ADMIN_OK;
}

int admin_failed(const struct admin_call *c, const struct fault *f, const struct buf *detail)
{
	const char *line = detail ? buf_text(detail) : "", *end;

	fprintf(c->err, NAME ": %s\n", f->reason[0] ? f->reason : fault_errno_name(f->err));
	for (; (end = strchr(line, '\n')); line = end + 1)
		fprintf(c->err, "  file: %.*s\n", (int)(end - line), line);
	if (f->offset >= 0)
		fprintf(c->err, "  at byte: %ld\n", f->offset);
	if (f->action[0])
		fprintf(c->err, "  to do: %s\n", f->action);
	return ADMIN_FAILED;
}

int admin_open_folder(const char *path, int *ret_folder, const char **ret_name, struct fault *f)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	AUTO_FREE char *folder = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");

	if (!name[0])
		return fault_set(f, -EINVAL, "give a name after the last slash",
			"there is no name in it");
	if (!folder)
		return fault_set(f, -ENOMEM, "free memory, then try again", "no memory");
	*ret_folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_folder < 0)
		return fault_set(f, -errno, "name a folder that is there",
			"cannot open the folder of %s: %s", name, strerror(errno));
	*ret_name = name;
	return 0;
}

/* --- finding the command ---------------------------------------------------------------------- */

static bool is_help(const char *arg)
{
	return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

static int count(const char *const *list)
{
	int n = 0;

	while (list[n])
		n++;
	return n;
}

/* How many of the words are right: those with which some command begins. */
static int right_words(int n, char **words)
{
	int right = 0;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		while (right < n && right < WORDS_MAX &&
			begins_with(&commands[i], words, right + 1))
			right++;
	return right;
}

static int unknown(FILE *err, char **words, int right)
{
	const char *names[ARRAY_SIZE(commands) + 1] = { NULL };
	const char *near;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (begins_with(&commands[i], words, right) && commands[i].words[right])
			names[n++] = commands[i].words[right];
	near = fault_nearest(words[right], names);
	fprintf(err, NAME ": no command \"");
	for (int i = 0; i <= right; i++)
		fprintf(err, "%s%s", i ? " " : "", words[i]);
	if (near) {
		fprintf(err, "\"; did you mean \"");
		for (int i = 0; i < right; i++)
			fprintf(err, "%s ", words[i]);
		fprintf(err, "%s\"?\n", near);
	} else {
		fprintf(err, "\"; see " NAME " --help\n");
	}
	return ADMIN_USAGE;
}

/* Of a row's arguments: "NAME" must be given, "[NAME]" may be; the last ones may be options, one
 * "[-x]" and one "[-x VALUE]". */
static bool is_option(const char *arg)
{
	return strncmp(arg, "[-", 2) == 0;
}

static void count_args(const struct command *c, int *ret_least, int *ret_most)
{
	*ret_least = *ret_most = 0;
	while (c->args[*ret_most] && !is_option(c->args[*ret_most]))
		++*ret_most;
	while (*ret_least < *ret_most && c->args[*ret_least][0] != '[')
		++*ret_least;
}

/* What ends the option's name in its row: ' ' before a value, ']'. '\0': there is no such option. */
static char find_option(const struct command *c, const char *given)
{
	size_t len = strlen(given);

	for (const char *const *arg = c->args; *arg; arg++)
		if (is_option(*arg) && strncmp(*arg + 1, given, len) == 0 &&
			strchr(" ]", (*arg)[1 + len]))
			return (*arg)[1 + len];
	return '\0';
}

static int no_option(const struct command *c, const char *given, FILE *err)
{
	fprintf(err, NAME ": no option \"%s\", or nothing follows it\n", given);
	put_usage(err, c);
	return -1;
}

static bool wants_help(int argc, char **args)
{
	for (int i = 0; i < argc; i++)
		if (is_help(args[i]))
			return true;
	return false;
}

/* Take the options out of the arguments, wherever they stand. Returns how many are left, or -1. */
static int take_options(const struct command *c, int argc, char **args, struct admin_call *call)
{
	int left = 0;

	for (int i = 0; i < argc; i++) {
		char end = args[i][0] == '-' ? find_option(c, args[i]) : '\0';

		if (args[i][0] != '-')
			args[left++] = args[i];
		else if (end == ']')
			call->flag = true;
		else if (end == ' ' && i + 1 < argc)
			call->value = args[++i];
		else
			return no_option(c, args[i], call->err);
	}
	return left;
}

static int run(const struct command *c, int argc, char **args, FILE *out, FILE *err)
{
	struct admin_call call = { args, 0, NULL, false, out, err };
	int least, most;

	if (wants_help(argc, args))
		return put_help(out, c);
	call.n_args = take_options(c, argc, args, &call);
	if (call.n_args < 0)
		return ADMIN_USAGE;
	count_args(c, &least, &most);
	if (call.n_args >= least && call.n_args <= most)
		return c->run(&call);
	fprintf(err, NAME ": arguments given: %d, needed: %d\n", call.n_args, least);
	put_usage(err, c);
	return ADMIN_USAGE;
}

static int dispatch(int argc, char **argv, FILE *out, FILE *err)
{
	int right = right_words(argc, argv);

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (right == count(commands[i].words) && begins_with(&commands[i], argv, right))
			return run(&commands[i], argc - right, argv + right, out, err);
	if (argc == right)
		return put_commands(err, argv, right, ADMIN_USAGE);
	return is_help(argv[right]) ? put_commands(out, argv, right, ADMIN_OK)
				    : unknown(err, argv, right);
}

int admin_main(int argc, char **argv, FILE *out, FILE *err)
{
	int code = dispatch(argc > 0 ? argc - 1 : 0, argv + 1, out, err);

	/* What was cut short before has left nothing to flush. */
	if ((fflush(out) != 0 || ferror(out)) && code == ADMIN_OK) {
		fprintf(err, NAME ": cannot write the output\n");
		return ADMIN_FAILED;
	}
	return code;
}
