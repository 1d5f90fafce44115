/* Each case begins on a device that was opened for it and ends with everything closed, so what one
 * case finds or breaks is no other's. A case fails by its own findings or by the watch's. */
#include "core/matrix/matrix_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/device_watch.h"

static const struct matrix_group *const groups[] = { &matrix_life, &matrix_calbin, &matrix_tensor,
	&matrix_csr, &matrix_infer_group, &matrix_engine, &matrix_status, &matrix_parallel,
	&matrix_kv, &matrix_reset, &matrix_security };

/* --- findings --------------------------------------------------------------------------------- */

void matrix_judge(struct matrix *m, bool right, const char *fmt, ...)
{
	va_list ap;

	if (m->verdict == CASE_FAILED || (m->verdict == CASE_SKIPPED && right))
		return;
	m->verdict = right ? CASE_OK : CASE_FAILED;
	va_start(ap, fmt);
	vsnprintf(m->text, sizeof m->text, fmt, ap);
	va_end(ap);
}

void matrix_skip(struct matrix *m, const char *why)
{
	if (m->verdict == CASE_FAILED)
		return;
	m->verdict = CASE_SKIPPED;
	snprintf(m->text, sizeof m->text, "%s", why);
}

const char *matrix_error(enum npu_error code)
{
	return npu_error_row(code)->name;
}

/* --- faults ----------------------------------------------------------------------------------- */

static void plant(void (*set)(enum layer_side, const struct fault_plan *), enum layer_side side,
	const char *spec)
{
	struct fault f = FAULT_NONE;
	struct fault_plan plan;

	if (!spec || strcmp(spec, MATRIX_LOSES_AUDIT) == 0) {
		set(side, NULL);
	} else if (fault_plan_parse(spec, &plan, &f)) {
		fprintf(stderr, "matrix: %s\n", f.reason); /* a case of this program is wrong */
		abort();
	} else {
		set(side, &plan);
	}
}

void matrix_plant(const char *spec)
{
	plant(device_layer_case, LAYER_DEVICE, spec);
}

static void arm(const struct matrix *m, const struct matrix_group *g, const struct matrix_case *c)
{
	const struct matrix_plant *p = m->config->plant;
	char name[128];

	snprintf(name, sizeof name, "%s: %s", g->name, c->name);
	if (p && strncmp(name, p->scope, strlen(p->scope)) == 0)
		plant(device_layer_plan, p->side, p->spec);
}

static void disarm(const struct matrix *m)
{
	if (m->config->plant)
		device_layer_plan(m->config->plant->side, NULL);
	matrix_plant(NULL);
	device_layer_release();
}

/* --- what a case stands on -------------------------------------------------------------------- */

enum npu_error matrix_open_device(struct matrix *m)
{
	return device_open(m->ops, &m->config->device, &m->device);
}

enum npu_error matrix_open_generation(struct matrix *m)
{
	struct fault f = FAULT_NONE;

	if (generation_open(m->device, m->manifest, m->artifact, ++m->generations, &m->generation,
		    &f))
		return f.device ? f.device : NPU_UNKNOWN;
	return NPU_SUCCESS;
}

enum npu_error matrix_close_generation(struct matrix *m)
{
	return generation_close(take_ptr(m->generation));
}

void matrix_close(struct matrix *m)
{
	matrix_close_generation(m);
	device_close(take_ptr(m->device));
}

void matrix_mark(struct matrix *m)
{
	for (int i = 0; i < CALL_COUNT; i++)
		m->marks[i] = device_calls((enum device_call)i);
}

uint64_t matrix_calls(const struct matrix *m, enum device_call call)
{
	return device_calls(call) - m->marks[call];
}

static bool prepare(struct matrix *m, enum matrix_needs needs)
{
	enum npu_error code = needs >= NEEDS_DEVICE ? matrix_open_device(m) : NPU_SUCCESS;

	if (!code && needs >= NEEDS_GENERATION)
		code = matrix_open_generation(m);
	if (code)
		matrix_judge(m, false, "preparing it: %s", matrix_error(code));
	return !code;
}

/* --- cases ------------------------------------------------------------------------------------ */

/* What the watch has to say, when the case itself has nothing. */
static void judge_watch(struct matrix *m)
{
	char first[WATCH_TEXT_SIZE];
	unsigned n = device_layer_breaches(first, sizeof first), live = device_layer_live();

	if (n)
		matrix_judge(m, false, "the watch: %s (%u breaches)", first, n);
	if (live)
		matrix_judge(m, false, "the watch: %u handles did not come back", live);
}

static void print(struct matrix *m, const struct matrix_group *g, const struct matrix_case *c)
{
	bool failed = m->verdict == CASE_FAILED, skipped = m->verdict == CASE_SKIPPED;

	fprintf(m->out, "%s %u - %s: %s%s%s\n", failed ? "not ok" : "ok", ++m->number, g->name,
		c->name, skipped ? " # SKIP " : ": ", m->text);
	fflush(m->out);
	m->failed += failed;
}

static bool fits(struct matrix *m, const struct matrix_case *c)
{
	bool llm = m->manifest->kind == MANIFEST_LLM;

	if (c->kind == FOR_LLM && !llm)
		matrix_skip(m, "it needs an LLM");
	if (c->kind == FOR_TENSOR && llm)
		matrix_skip(m, "it needs a tensor artifact");
	return m->verdict == CASE_OPEN;
}

static void run_case(struct matrix *m, const struct matrix_group *g, const struct matrix_case *c)
{
	m->verdict = CASE_OPEN;
	device_layer_new_book();
	if (fits(m, c)) {
		if (prepare(m, c->needs)) {
			matrix_mark(m);
			arm(m, g, c);
			c->run(m, c->arg);
		}
		disarm(m);
		matrix_close(m);
		judge_watch(m);
		if (m->verdict == CASE_OPEN)
			matrix_judge(m, false, "nothing was found out");
	}
	device_layer_allow_resets(false);
	print(m, g, c);
}

static void run_groups(struct matrix *m)
{
	const char *only = m->config->only ? m->config->only : "";

	for (size_t g = 0; g < ARRAY_SIZE(groups); g++)
		for (size_t i = 0; i < groups[g]->n; i++)
			if (strncmp(groups[g]->name, only, strlen(only)) == 0)
				run_case(m, groups[g], &groups[g]->cases[i]);
}

/* --- models ----------------------------------------------------------------------------------- */

static int run_artifact(struct matrix *m, const char *alias, struct fault *f)
{
	int err = artifact_verify(m->config->store, alias, &m->artifact, f);
	unsigned failed;

	if (err)
		return err;
	m->alias = alias;
	m->manifest = m->artifact->manifest;
	fprintf(m->out, "# model %s, %s\n", alias,
		m->manifest->kind == MANIFEST_LLM ? "an LLM" : "tensors");
	failed = m->failed;
	m->seen_parallel = false;
	run_groups(m);
	if (m->config->evidence && m->failed == failed && m->seen_parallel && !m->config->faults &&
		!m->config->only)
		matrix_record(m);
	artifact_free(take_ptr(m->artifact));
	return 0;
}

static int run_own(struct matrix *m, struct fault *f)
{
	const char *text = m->ops->own_manifest;
	struct manifest *own;
	int err = manifest_parse(text, strlen(text), true, &own, f);

	if (err)
		return err;
	m->manifest = own;
	fprintf(m->out, "# the backend's own model\n");
	run_groups(m);
	manifest_free(own);
	return 0;
}

static int run_store(struct matrix *m, struct fault *f)
{
	char **aliases;
	int err = artifact_list(m->config->store, &aliases, f);

	if (err)
		return err;
	if (!aliases[0])
		err = fault_set(f, -ENOENT, "import and sign one: npufs-admin artifact",
			"the store has no model");
	for (size_t i = 0; !err && aliases[i]; i++)
		err = run_artifact(m, aliases[i], f);
	artifact_list_free(aliases);
	return err;
}

int matrix_run(const struct matrix_config *c, FILE *out, struct fault *f)
{
	struct matrix m = { .config = c, .out = out };
	int err;

	m.ops = device_layer_over(c->ops);
	if (c->faults)
		device_layer_plan(LAYER_DEVICE, c->faults);
	fprintf(out, "TAP version 13\n# device %s\n", m.ops->name);
	if (m.ops->own_manifest)
		err = run_own(&m, f);
	else if (c->model)
		err = run_artifact(&m, c->model, f);
	else
		err = run_store(&m, f);
	if (err)
		fprintf(out, "Bail out! %s\n", f->reason);
	else
		fprintf(out, "1..%u\n", m.number);
	return err ? err : (int)m.failed;
}
