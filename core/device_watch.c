/* One row a live handle. A breach is written once, the first one; later ones are counted, for they
 * mostly follow from it.
 *
 * Mappings of a buffer: a slice makes a tensor mapped; Wait makes what is mapped stale, in the output
 * and in the input it was submitted with; only a reset of all tensors makes stale ones free again. */
#include "core/device_watch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kinds[WATCH_KINDS] = { "devices", "calbins", "input buffers",
	"output buffers", "KV managers", "KV sequences" };

void watch_init(struct device_watch *w)
{
	memset(w, 0, sizeof *w);
}

void watch_clear(struct device_watch *w)
{
	w->breaches = 0;
	w->first[0] = '\0';
}

__attribute__((format(printf, 2, 3))) static void breach(struct device_watch *w, const char *fmt,
	...)
{
	va_list ap;

	if (w->breaches++)
		return;
	va_start(ap, fmt);
	vsnprintf(w->first, sizeof w->first, fmt, ap);
	va_end(ap);
}

static void breach_if(struct device_watch *w, bool broken, const char *text)
{
	if (broken)
		breach(w, "%s", text);
}

/* --- handles ---------------------------------------------------------------------------------- */

static struct watch_handle *find(struct device_watch *w, enum watch_kind kind, uintptr_t handle)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->handles[i].kind == kind && w->handles[i].handle == handle)
			return &w->handles[i];
	return NULL;
}

static struct watch_handle *buffer(struct device_watch *w, enum watch_kind kind, const void *b)
{
	return find(w, kind, (uintptr_t)b);
}

static void add(struct device_watch *w, enum watch_kind kind, uintptr_t handle,
	const struct model_info *info)
{
	if (w->n == WATCH_MAX_HANDLES)
		return;
	w->handles[w->n++] = (struct watch_handle){ .kind = kind, .handle = handle, .info = info };
	w->live[kind]++;
}

static void forget(struct device_watch *w, struct watch_handle *h)
{
	w->live[h->kind]--;
	*h = w->handles[--w->n];
}

void watch_made(struct device_watch *w, enum watch_kind kind, const void *handle,
	const struct model_info *info)
{
	breach_if(w, (kind == WATCH_INPUT || kind == WATCH_OUTPUT) && !w->configured,
		"a buffer is made while nothing is configured");
	add(w, kind, (uintptr_t)handle, info);
}

/* What must be gone before a handle of each kind goes. */
static void check_order(struct device_watch *w, enum watch_kind going)
{
	static const enum watch_kind first[WATCH_KINDS][WATCH_KINDS] = {
		[WATCH_DEVICE] = { WATCH_CALBIN, WATCH_INPUT, WATCH_OUTPUT, WATCH_KV,
			WATCH_SEQUENCE },
		[WATCH_CALBIN] = { WATCH_INPUT, WATCH_OUTPUT, WATCH_KV, WATCH_SEQUENCE },
		[WATCH_KV] = { WATCH_SEQUENCE },
	};

	for (size_t i = 0; i < WATCH_KINDS && first[going][i]; i++)
		if (w->live[first[going][i]])
			breach(w, "%s go before %u %s", kinds[going], w->live[first[going][i]],
				kinds[first[going][i]]);
	breach_if(w, going == WATCH_CALBIN && w->configured,
		"a calbin goes before ResetConfiguration");
}

/* An input is in flight while an output is that was submitted with it. */
static bool input_in_flight(const struct device_watch *w, uintptr_t in)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->handles[i].in_flight && w->handles[i].input == in)
			return true;
	return false;
}

static bool in_flight(const struct device_watch *w, const struct watch_handle *h)
{
	return h->kind == WATCH_INPUT ? input_in_flight(w, h->handle) : h->in_flight;
}

/* The devices with what runs on them: buffers alone, or anything at all. */
static void check_flight(struct device_watch *w, const struct watch_handle *h)
{
	bool is_buffer = h->kind == WATCH_INPUT || h->kind == WATCH_OUTPUT;

	if (is_buffer ? in_flight(w, h) : h->kind != WATCH_SEQUENCE && w->in_flight)
		breach(w, "one of the %s goes while in flight", kinds[h->kind]);
}

bool watch_gone(struct device_watch *w, enum watch_kind kind, const void *handle)
{
	struct watch_handle *h = buffer(w, kind, handle);

	if (!h) {
		if (w->n == WATCH_MAX_HANDLES)
			return true;
		breach(w, "one of the %s goes twice, or was never there", kinds[kind]);
		return false;
	}
	check_order(w, kind);
	check_flight(w, h);
	breach_if(w, h->unread, "the status was never read after Wait");
	if (h->in_flight)
		w->in_flight--;
	if (kind == WATCH_KV)
		watch_sequences_cleared(w);
	if (kind == WATCH_CALBIN)
		w->n_models = 0;
	forget(w, buffer(w, kind, handle));
	return true;
}

void watch_sequence(struct device_watch *w, int32_t id, bool there)
{
	struct watch_handle *h = find(w, WATCH_SEQUENCE, (uintptr_t)id);

	if (there && !h)
		add(w, WATCH_SEQUENCE, (uintptr_t)id, NULL);
	if (!there && h)
		forget(w, h);
}

void watch_sequences_cleared(struct device_watch *w)
{
	for (size_t i = w->n; i-- > 0;)
		if (w->handles[i].kind == WATCH_SEQUENCE)
			forget(w, &w->handles[i]);
}

/* --- configuration ---------------------------------------------------------------------------- */

void watch_loaded(struct device_watch *w, const struct llm_info *llm)
{
	w->max_seq_len = llm->max_batch_size ? llm->max_seq_len : 0;
}

void watch_configured(struct device_watch *w)
{
	breach_if(w, w->configured, "configured while another generation is");
	w->configured = true;
}

static void check_idle(struct device_watch *w, const char *call)
{
	if (w->in_flight)
		breach(w, "%s with %u in flight", call, w->in_flight);
}

void watch_reset_configuration(struct device_watch *w)
{
	check_idle(w, "ResetConfiguration");
	for (enum watch_kind k = WATCH_INPUT; k <= WATCH_KV; k++)
		if (w->live[k])
			breach(w, "ResetConfiguration before %u %s are gone", w->live[k], kinds[k]);
	w->configured = false;
}

void watch_reset(struct device_watch *w, const char *level)
{
	check_idle(w, level);
	if (!w->resets_allowed)
		breach(w, "%s, which nobody has allowed", level);
}

void watch_parallel(struct device_watch *w, bool on)
{
	check_idle(w, "EnableParallelMode");
	w->parallel = on;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static int tensor_index(const struct watch_handle *h, const char *name)
{
	bool in = h->kind == WATCH_INPUT;
	const struct tensor_spec *t = in ? h->info->inputs : h->info->outputs;
	size_t n = in ? h->info->n_inputs : h->info->n_outputs;

	for (size_t i = 0; i < n && i < WATCH_MAX_TENSORS; i++)
		if (strcmp(t[i].name, name) == 0)
			return (int)i;
	return -1;
}

void watch_sliced(struct device_watch *w, enum watch_kind kind, const void *b, const char *tensor,
	void *host, uint64_t size)
{
	struct watch_handle *h = buffer(w, kind, b);
	int i = h ? tensor_index(h, tensor) : -1;

	if (!h || i < 0)
		return;
	breach_if(w, in_flight(w, h), "a tensor is mapped while in flight");
	breach_if(w, h->stale >> i & 1, "a tensor is mapped again without a reset");
	breach_if(w, h->unread, "the status was never read after Wait");
	h->mapped |= UINT64_C(1) << i;
	if (i == 0 && kind == WATCH_OUTPUT) {
		h->host = host;
		h->size = size;
	}
}

void watch_tensors_reset(struct device_watch *w, enum watch_kind kind, const void *b)
{
	struct watch_handle *h = buffer(w, kind, b);

	if (!h)
		return;
	breach_if(w, in_flight(w, h), "tensors are reset while in flight");
	h->mapped = h->stale = 0;
	h->host = NULL;
}

/* --- lengths ---------------------------------------------------------------------------------- */

static struct watch_model *model_row(struct device_watch *w, const void *model)
{
	for (size_t i = 0; i < w->n_models; i++)
		if (w->models[i].model == model)
			return &w->models[i];
	if (w->n_models == WATCH_MAX_MODELS)
		return NULL;
	w->models[w->n_models] = (struct watch_model){ .model = model };
	return &w->models[w->n_models++];
}

void watch_csr(struct device_watch *w, const void *model, const char *name, uint32_t value)
{
	struct watch_model *m = model_row(w, model);

	if (m && strcmp(name, CSR_CUR_LEN) == 0) {
		m->cur = value;
		m->cur_set = true;
	} else if (m && strcmp(name, CSR_PAST_LEN) == 0) {
		m->total = value;
		m->total_set = true;
	}
}

static bool needs_lengths(const struct model_info *info)
{
	for (size_t i = 0; i < info->n_csrs; i++)
		if (strcmp(info->csrs[i], CSR_CUR_LEN) == 0)
			return true;
	return false;
}

static void check_lengths(struct device_watch *w, const void *model)
{
	struct watch_model *m = model_row(w, model);

	if (!m)
		return;
	breach_if(w, !m->cur_set || !m->total_set, "a submit without both lengths set");
	breach_if(w,
		m->cur_set && m->total_set &&
			(m->cur < 1 || m->cur > m->total || m->total > w->max_seq_len),
		"a submit with lengths out of bounds");
	m->cur_set = m->total_set = false;
}

/* --- inference -------------------------------------------------------------------------------- */

static uint64_t all_of(size_t n)
{
	return n >= WATCH_MAX_TENSORS ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

static void check_mapped(struct device_watch *w, const struct watch_handle *h, size_t n)
{
	breach_if(w, h->stale, "a submit with a mapping of an earlier run");
	breach_if(w, (h->mapped | h->stale) != all_of(n),
		"a submit with a tensor that is not mapped");
}

void watch_submitting(struct device_watch *w, const void *model, const void *in, const void *out)
{
	const struct watch_handle *i = buffer(w, WATCH_INPUT, in);
	const struct watch_handle *o = buffer(w, WATCH_OUTPUT, out);

	breach_if(w, !w->configured, "a submit while nothing is configured");
	if (!i || !o) {
		breach(w, "a submit with a buffer that is not there");
		return;
	}
	breach_if(w, o->in_flight, "a submit with an output that is in flight");
	breach_if(w, w->in_flight >= (w->parallel ? DEVICE_ENGINES : 1),
		"more in flight than allowed");
	check_mapped(w, i, i->info->n_inputs);
	check_mapped(w, o, o->info->n_outputs);
	if (needs_lengths(o->info))
		check_lengths(w, model);
}

void watch_submitted(struct device_watch *w, const void *model, const void *in, const void *out)
{
	struct watch_handle *o = buffer(w, WATCH_OUTPUT, out);

	(void)model;
	if (!o || o->in_flight)
		return;
	o->in_flight = true;
	o->input = (uintptr_t)in;
	w->in_flight++;
}

void watch_waiting(struct device_watch *w, const void *out)
{
	const struct watch_handle *o = buffer(w, WATCH_OUTPUT, out);

	breach_if(w, !o || !o->in_flight, "a Wait without a submit that was taken");
}

static void make_stale(struct watch_handle *h)
{
	h->stale |= h->mapped;
	h->mapped = 0;
}

void watch_waited(struct device_watch *w, const void *out, enum npu_error code)
{
	struct watch_handle *o = buffer(w, WATCH_OUTPUT, out), *i;

	if (!o || !o->in_flight)
		return;
	i = find(w, WATCH_INPUT, o->input);
	make_stale(o);
	if (i)
		make_stale(i);
	o->in_flight = false;
	o->unread = code == NPU_SUCCESS;
	w->in_flight--;
}

void watch_status(struct device_watch *w, const void *out)
{
	struct watch_handle *o = buffer(w, WATCH_OUTPUT, out);

	if (o)
		o->unread = false;
}

/* --- for faults in outputs -------------------------------------------------------------------- */

static bool has_memory(const struct watch_handle *h)
{
	return h->kind == WATCH_OUTPUT && h->host && h->size;
}

const struct watch_handle *watch_output(const struct device_watch *w, const void *out)
{
	for (size_t i = 0; i < w->n; i++)
		if (has_memory(&w->handles[i]) && w->handles[i].handle == (uintptr_t)out)
			return &w->handles[i];
	return NULL;
}

const struct watch_handle *watch_other_output(const struct device_watch *w, const void *out)
{
	for (size_t i = 0; i < w->n; i++)
		if (has_memory(&w->handles[i]) && !w->handles[i].in_flight &&
			w->handles[i].handle != (uintptr_t)out)
			return &w->handles[i];
	return NULL;
}
