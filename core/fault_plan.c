/* One table says what each call can be made to do, so a rule is checked as a whole before anything is
 * planted, and a plan that was taken has no rule without effect for being nonsense. */
#include "core/fault_plan.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/decimal.h"
#include "core/base/mem.h"

#define FIELD    "fault"
#define WORD_MAX 40
#define EXAMPLE  "write it as Wait@3:DeviceCrash, rules joined by /"

#define BIT(effect) (1u << (effect))
#define ANY         (BIT(PLAN_HANG) | BIT(PLAN_DELAY))
#define VOID        (ANY | BIT(PLAN_SILENT))
#define CODE        (VOID | BIT(PLAN_ERROR) | BIT(PLAN_ACCEPT))
#define MAKES       (ANY | BIT(PLAN_ERROR) | BIT(PLAN_NULL))
#define YES_NO      (ANY | BIT(PLAN_TRUE) | BIT(PLAN_FALSE))
#define NUMBER      (ANY | BIT(PLAN_GROW))
#define STATES      (BIT(PLAN_CCU) | BIT(PLAN_PENDING) | BIT(PLAN_RUNNING) | BIT(PLAN_DONE))

static const struct call_row {
	const char *name;
	unsigned effects;
} calls[] = {
	[PLAN_CREATE_VDEVICE] = { "CreateVDevice", MAKES },
	[PLAN_STATUS] = { "Status", CODE },
	[PLAN_DEVICE_INFO] = { "GetDeviceInfo", CODE | BIT(PLAN_OTHER) },
	[PLAN_RESET_CONFIGURATION] = { "ResetConfiguration", CODE | BIT(PLAN_TWICE) },
	[PLAN_RESET_CCU] = { "ResetCCU", CODE },
	[PLAN_RESET] = { "Reset", CODE },
	[PLAN_PARALLEL] = { "EnableParallelMode", VOID },
	[PLAN_SHUTDOWN] = { "Shutdown", VOID },
	[PLAN_CREATE_CALBIN] = { "CreateCalbin", MAKES | BIT(PLAN_LAST) },
	[PLAN_DESTROY_CALBIN] = { "destroyCalbin", VOID },
	[PLAN_ALL_MODELS] = { "GetAllModels", NUMBER },
	[PLAN_MODEL_BY_NAME] = { "GetModelByName", ANY | BIT(PLAN_NULL) },
	[PLAN_LLM_INFO] = { "GetLLMInfo", NUMBER },
	[PLAN_VERSION] = { "Version", ANY | BIT(PLAN_OTHER) },
	[PLAN_GOLDEN] = { "GetGolden", VOID | BIT(PLAN_CORRUPT) },
	[PLAN_CONFIGURE] = { "configure", CODE | BIT(PLAN_TWICE) },
	[PLAN_CREATE_INPUT] = { "createInputBuf", MAKES },
	[PLAN_CREATE_OUTPUT] = { "createOutputBuf", MAKES },
	[PLAN_DESTROY_INPUT] = { "destroyInputBuf", VOID | BIT(PLAN_LATE) },
	[PLAN_DESTROY_OUTPUT] = { "destroyOutputBuf", VOID | BIT(PLAN_LATE) },
	[PLAN_SLICE] = { "SliceTensorByName", CODE },
	[PLAN_RESET_TENSORS] = { "ResetAllTensors", VOID },
	[PLAN_SET_CSR] = { "SetCsrByName", CODE },
	[PLAN_GET_CSR] = { "GetCsrValueByName", NUMBER },
	[PLAN_INFER] = { "infer", CODE | BIT(PLAN_TWICE) },
	[PLAN_SUBMIT] = { "SubmitJob", VOID },
	[PLAN_WAIT] = { "Wait",
		CODE | BIT(PLAN_TWICE) | BIT(PLAN_CORRUPT) | BIT(PLAN_NAN) | BIT(PLAN_SWAP) },
	[PLAN_RUN_STATUS] = { "GetStatus", ANY | STATES },
	[PLAN_CREATE_KV] = { "createKvManager", MAKES },
	[PLAN_DESTROY_KV] = { "destroyKvManager", VOID | BIT(PLAN_LATE) },
	[PLAN_CAN_ALLOCATE] = { "canAllocate", YES_NO },
	[PLAN_ALLOCATE] = { "Allocate", VOID },
	[PLAN_FREE] = { "Free", VOID },
	[PLAN_REMOVE] = { "RemoveTokensAtEnd", VOID | BIT(PLAN_GROW) },
	[PLAN_EXISTS] = { "isExist", YES_NO },
	[PLAN_APPLY] = { "Apply", YES_NO | BIT(PLAN_GROW) },
	[PLAN_SEQ_LEN] = { "GetSeqLen", NUMBER },
	[PLAN_CLEAR] = { "Clear", VOID },
	[PLAN_POS_MIN] = { "seqPosMin", NUMBER },
	[PLAN_POS_MAX] = { "seqPosMax", NUMBER },
};

_Static_assert(ARRAY_SIZE(calls) == PLAN_CALLS, "one row for each call");

/* In the order of the effects, from PLAN_HANG. */
static const char *const words[] = { "hang", "delay=MS", "silent", "accept", "null", "last", "late",
	"twice", "corrupt", "nan", "swap", "ccu", "pending", "running", "done", "true", "false",
	"grow", "other", NULL };

_Static_assert(ARRAY_SIZE(words) == PLAN_EFFECTS - PLAN_HANG + 1, "one word for each effect");

const char *plan_call_name(enum plan_call call)
{
	return calls[call].name;
}

const char *const *plan_effect_words(void)
{
	return words;
}

/* --- refusing --------------------------------------------------------------------------------- */

static int refuse(struct fault *f, long at, const char *what, const char *word,
	const char *const *names)
{
	const char *near = fault_nearest(word, names);

	return fault_at(f, -EINVAL, FIELD, at, EXAMPLE,
		"at byte %ld of the faults: no %s \"%s\"%s%s%s", at, what, word,
		near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int unknown_call(struct fault *f, long at, const char *word)
{
	const char *names[PLAN_CALLS + 1];

	for (size_t i = 0; i < PLAN_CALLS; i++)
		names[i] = calls[i].name;
	names[PLAN_CALLS] = NULL;
	return refuse(f, at, "call", word, names);
}

static int unknown_effect(struct fault *f, long at, const char *word)
{
	const char *names[ARRAY_SIZE(words) + NPU_ERROR_COUNT];
	size_t n = 0;

	for (size_t i = 0; words[i]; i++)
		names[n++] = words[i];
	for (int code = 0; code < NPU_ERROR_COUNT; code++)
		names[n++] = npu_error_row((enum npu_error)code)->name;
	names[n] = NULL;
	return refuse(f, at, "effect", word, names);
}

static int cannot(struct fault *f, long at, const struct call_row *row, const char *word)
{
	AUTO_BUF struct buf can = BUF_INIT;

	if (row->effects & BIT(PLAN_ERROR))
		buf_puts(&can, " errors");
	for (unsigned e = PLAN_HANG; e < PLAN_EFFECTS; e++)
		if (row->effects & BIT(e))
			buf_printf(&can, " %s", words[e - PLAN_HANG]);
	return fault_at(f, -EINVAL, FIELD, at, EXAMPLE,
		"at byte %ld of the faults: %s cannot do \"%s\"; it can:%s", at, row->name, word,
		buf_text(&can));
}

/* --- parsing ---------------------------------------------------------------------------------- */

/* What is left of the text, and where it began. */
struct cursor {
	const char *start, *at;
};

/* Up to one of `ends` or the text's end; a word too long for its place is cut and so unknown. */
static void take_word(struct cursor *c, const char *ends, char ret[WORD_MAX])
{
	size_t n = strcspn(c->at, ends);
	size_t kept = n < WORD_MAX ? n : WORD_MAX - 1;

	memcpy(ret, c->at, kept);
	ret[kept] = '\0';
	c->at += n;
}

static int expect(struct cursor *c, char sign, struct fault *f)
{
	long at = c->at - c->start;

	if (*c->at != sign)
		return fault_at(f, -EINVAL, FIELD, at, EXAMPLE,
			"at byte %ld of the faults: a '%c' is needed here", at, sign);
	c->at++;
	return 0;
}

/* A plain decimal number; decimal_read() alone would take "1e3" and "-0" too. */
static bool read_number(const char *text, uint64_t most, uint64_t *ret)
{
	size_t digits = strspn(text, "0123456789");
	struct decimal d;

	if (digits == 0 || text[digits] || (digits > 1 && text[0] == '0') ||
		decimal_read(text, &d) || d.magnitude > most)
		return false;
	*ret = d.magnitude;
	return true;
}

static int parse_count(struct cursor *c, struct plan_rule *r, struct fault *f)
{
	long at = c->at - c->start;
	char word[WORD_MAX];
	size_t n;

	take_word(c, ":/", word);
	n = strlen(word);
	if (strcmp(word, "*") == 0) {
		r->from = 1;
		r->to = UINT64_MAX;
		return 0;
	}
	r->to = n && word[n - 1] == '-' ? UINT64_MAX : 0;
	if (r->to)
		word[n - 1] = '\0';
	if (!read_number(word, INT64_MAX, &r->from) || r->from == 0)
		return fault_at(f, -EINVAL, FIELD, at,
			"give the number of a call from 1, such as 3, or 3- from then on, or *",
			"at byte %ld of the faults: \"%s\" is no number of a call", at, word);
	if (!r->to)
		r->to = r->from;
	return 0;
}

static bool parse_delay(const char *word, struct plan_rule *r)
{
	uint64_t ms;

	if (strncmp(word, "delay=", 6) != 0 || !read_number(word + 6, FAULT_PLAN_MAX_DELAY, &ms))
		return false;
	r->effect = PLAN_DELAY;
	r->ms = (unsigned)ms;
	return true;
}

static bool parse_word(const char *word, struct plan_rule *r)
{
	for (unsigned i = 0; words[i]; i++)
		if (i != PLAN_DELAY - PLAN_HANG && strcmp(word, words[i]) == 0) {
			r->effect = (enum plan_effect)(PLAN_HANG + i);
			return true;
		}
	return false;
}

static bool parse_error(const char *word, struct plan_rule *r)
{
	for (int code = 0; code < NPU_ERROR_COUNT; code++)
		if (strcmp(word, npu_error_row((enum npu_error)code)->name) == 0) {
			r->effect = PLAN_ERROR;
			r->code = (enum npu_error)code;
			return true;
		}
	return false;
}

static int parse_effect(struct cursor *c, struct plan_rule *r, struct fault *f)
{
	long at = c->at - c->start;
	char word[WORD_MAX];

	take_word(c, "/", word);
	if (strncmp(word, "delay=", 6) == 0 && !parse_delay(word, r))
		return fault_at(f, -EINVAL, FIELD, at, "give milliseconds, such as delay=100",
			"at byte %ld of the faults: a delay is 0 to %d milliseconds", at,
			FAULT_PLAN_MAX_DELAY);
	if (!parse_delay(word, r) && !parse_word(word, r) && !parse_error(word, r))
		return unknown_effect(f, at, word);
	if (!(calls[r->call].effects & BIT(r->effect)))
		return cannot(f, at, &calls[r->call], word);
	return 0;
}

static int parse_call(struct cursor *c, struct plan_rule *r, struct fault *f)
{
	long at = c->at - c->start;
	char word[WORD_MAX];

	take_word(c, "@:/", word);
	for (unsigned i = 0; i < PLAN_CALLS; i++)
		if (strcmp(word, calls[i].name) == 0) {
			r->call = (enum plan_call)i;
			return 0;
		}
	return unknown_call(f, at, word);
}

static int parse_rule(struct cursor *c, struct plan_rule *r, struct fault *f)
{
	int err = parse_call(c, r, f);

	if (!err)
		err = expect(c, '@', f);
	if (!err)
		err = parse_count(c, r, f);
	if (!err)
		err = expect(c, ':', f);
	return err ? err : parse_effect(c, r, f);
}

static int too_many(struct fault *f, long at)
{
	return fault_at(f, -E2BIG, FIELD, at, "give fewer rules",
		"at most %d faults and %d bytes can be planted", FAULT_PLAN_MAX_RULES,
		FAULT_PLAN_MAX_BYTES);
}

int fault_plan_parse(const char *spec, struct fault_plan *ret, struct fault *f)
{
	struct fault_plan plan = { .n = 0 };
	struct cursor c = { spec, spec };
	int err = 0;

	if (strnlen(spec, FAULT_PLAN_MAX_BYTES + 1) > FAULT_PLAN_MAX_BYTES)
		return too_many(f, FAULT_PLAN_MAX_BYTES);
	while (!err && *spec) {
		if (plan.n == FAULT_PLAN_MAX_RULES)
			return too_many(f, c.at - c.start);
		err = parse_rule(&c, &plan.rules[plan.n++], f);
		if (err || !*c.at)
			break;
		c.at++; /* the slash, after which a rule must follow */
	}
	if (!err)
		*ret = plan;
	return err;
}
