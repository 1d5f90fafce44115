/* Between the two sides: each call is told to the book and then made. The book is never locked while a
 * call is made. Whether a KV sequence is there is asked of the backend itself, so that this asking is
 * neither counted nor lied to. */
#include "core/device_layer_impl.h"

static const struct device_ops *below, *backend;

/* One line told to the book. */
#define TELL(call) \
	do { \
		struct device_watch *w = layer_watch(); \
		call; \
		layer_watch_done(); \
	} while (0)

static bool going(enum watch_kind kind, const void *handle)
{
	bool known;

	TELL(known = watch_gone(w, kind, handle));
	return known;
}

static void made(enum npu_error code, enum watch_kind kind, const void *handle,
	const struct model_info *info)
{
	if (!code && handle)
		TELL(watch_made(w, kind, handle, info));
}

/* --- device and calbin ------------------------------------------------------------------------ */

static enum npu_error create_vdevice(const struct device_params *p, struct vdevice **ret)
{
	enum npu_error code = below->create_vdevice(p, ret);

	made(code, WATCH_DEVICE, code ? NULL : *ret, NULL);
	return code;
}

static void shutdown_device(struct vdevice *d)
{
	if (going(WATCH_DEVICE, d))
		below->shutdown(d);
}

static enum npu_error create_calbin(struct vdevice *d, const char *path, struct calbin **ret)
{
	enum npu_error code = below->create_calbin(d, path, ret);

	made(code, WATCH_CALBIN, code ? NULL : *ret, NULL);
	return code;
}

static void destroy_calbin(struct calbin *c)
{
	if (going(WATCH_CALBIN, c))
		below->destroy_calbin(c);
}

static void get_llm_info(struct calbin *c, struct llm_info *ret)
{
	below->get_llm_info(c, ret);
	TELL(watch_loaded(w, ret));
}

static enum npu_error configure(struct vdevice *d, struct calbin *c, bool dump_ini)
{
	enum npu_error code = below->configure(d, c, dump_ini);

	if (!code)
		TELL(watch_configured(w));
	return code;
}

static enum npu_error reset_configuration(struct vdevice *d)
{
	TELL(watch_reset_configuration(w));
	return below->reset_configuration(d);
}

static enum npu_error reset_ccu(struct vdevice *d)
{
	TELL(watch_reset(w, "ResetCCU"));
	return below->reset_ccu(d);
}

static enum npu_error reset(struct vdevice *d)
{
	TELL(watch_reset(w, "Reset"));
	return below->reset(d);
}

static void enable_parallel(struct vdevice *d, bool on)
{
	TELL(watch_parallel(w, on));
	below->enable_parallel(d, on);
}

/* --- buffers ---------------------------------------------------------------------------------- */

static enum npu_error create_input_buf(struct model *m, struct inbuf **ret)
{
	enum npu_error code = below->create_input_buf(m, ret);

	made(code, WATCH_INPUT, code ? NULL : *ret, backend->model_info(m));
	return code;
}

static enum npu_error create_output_buf(struct model *m, struct outbuf **ret)
{
	enum npu_error code = below->create_output_buf(m, ret);

	made(code, WATCH_OUTPUT, code ? NULL : *ret, backend->model_info(m));
	return code;
}

static void destroy_input_buf(struct inbuf *b)
{
	if (going(WATCH_INPUT, b))
		below->destroy_input_buf(b);
}

static void destroy_output_buf(struct outbuf *b)
{
	if (going(WATCH_OUTPUT, b))
		below->destroy_output_buf(b);
}

static enum npu_error slice_input(struct inbuf *b, const char *tensor, const void *host,
	uint64_t offset, uint64_t size)
{
	enum npu_error code = below->slice_input(b, tensor, host, offset, size);

	if (!code)
		TELL(watch_sliced(w, WATCH_INPUT, b, tensor, NULL, size));
	return code;
}

static enum npu_error slice_output(struct outbuf *b, const char *tensor, void *host,
	uint64_t offset, uint64_t size)
{
	enum npu_error code = below->slice_output(b, tensor, host, offset, size);

	if (!code)
		TELL(watch_sliced(w, WATCH_OUTPUT, b, tensor, host, size));
	return code;
}

static void reset_input(struct inbuf *b)
{
	TELL(watch_tensors_reset(w, WATCH_INPUT, b));
	below->reset_input(b);
}

static void reset_output(struct outbuf *b)
{
	TELL(watch_tensors_reset(w, WATCH_OUTPUT, b));
	below->reset_output(b);
}

/* --- inference -------------------------------------------------------------------------------- */

static enum npu_error set_csr(struct model *m, const char *csr, uint32_t value)
{
	enum npu_error code = below->set_csr(m, csr, value);

	if (!code)
		TELL(watch_csr(w, m, csr, value));
	return code;
}

static enum npu_error infer(struct vdevice *d, struct model *m, struct inbuf *in,
	struct outbuf *out, enum device_task task)
{
	enum npu_error code;

	TELL(watch_submitting(w, m, in, out));
	code = below->infer(d, m, in, out, task);
	if (!code)
		TELL(watch_submitted(w, m, in, out));
	return code;
}

static void submit_void(struct vdevice *d, struct model *m, struct inbuf *in, struct outbuf *out,
	enum device_task task)
{
	TELL(watch_submitting(w, m, in, out));
	below->submit_void(d, m, in, out, task);
	TELL(watch_submitted(w, m, in, out));
}

static enum npu_error wait(struct outbuf *out)
{
	enum npu_error code;

	TELL(watch_waiting(w, out));
	code = below->wait(out);
	TELL(watch_waited(w, out, code));
	return code;
}

static enum device_run run_status(struct outbuf *out)
{
	TELL(watch_status(w, out));
	return below->run_status(out);
}

/* --- KV --------------------------------------------------------------------------------------- */

static enum npu_error create_kv(struct vdevice *d, struct calbin *c, struct kvman **ret)
{
	enum npu_error code = below->create_kv(d, c, ret);

	made(code, WATCH_KV, code ? NULL : *ret, NULL);
	return code;
}

static void destroy_kv(struct kvman *k)
{
	if (going(WATCH_KV, k))
		below->destroy_kv(k);
}

static void kv_allocate(struct kvman *k, const struct kv_seq_info *seq)
{
	below->kv_allocate(k, seq);
	if (backend->kv_exists(k, seq->seq_id))
		TELL(watch_sequence(w, seq->seq_id, true));
}

static void kv_free(struct kvman *k, int32_t id)
{
	TELL(watch_sequence(w, id, false));
	below->kv_free(k, id);
}

static void kv_clear(struct kvman *k)
{
	TELL(watch_sequences_cleared(w));
	below->kv_clear(k);
}

void layer_watch_table(struct device_ops *t, const struct device_ops *under,
	const struct device_ops *inner)
{
	below = under;
	backend = inner;
	t->create_vdevice = create_vdevice;
	t->shutdown = shutdown_device;
	t->create_calbin = create_calbin;
	t->destroy_calbin = destroy_calbin;
	t->get_llm_info = get_llm_info;
	t->configure = configure;
	t->reset_configuration = reset_configuration;
	t->reset_ccu = below->reset_ccu ? reset_ccu : NULL;
	t->reset = below->reset ? reset : NULL;
	t->enable_parallel = below->enable_parallel ? enable_parallel : NULL;
	t->create_input_buf = create_input_buf;
	t->create_output_buf = create_output_buf;
	t->destroy_input_buf = destroy_input_buf;
	t->destroy_output_buf = destroy_output_buf;
	t->slice_input = slice_input;
	t->slice_output = slice_output;
	t->reset_input = reset_input;
	t->reset_output = reset_output;
	t->set_csr = set_csr;
	t->infer = infer;
	t->submit_void = below->submit_void ? submit_void : NULL;
	t->wait = wait;
	t->run_status = run_status;
	t->create_kv = below->create_kv ? create_kv : NULL;
	t->destroy_kv = below->destroy_kv ? destroy_kv : NULL;
	t->kv_allocate = below->kv_allocate ? kv_allocate : NULL;
	t->kv_free = below->kv_free ? kv_free : NULL;
	t->kv_clear = below->kv_clear ? kv_clear : NULL;
}
