/* The functions that plant faults, included once for each side with
 *   SIDE      which
 *   FN(name)  what a function is called
 *   BELOW     the table that they call
 * A table's entry that has nothing to plant is left as the one below. */

#define CODE_CALL(name, call, params, ...) \
	static enum npu_error FN(name) params \
	{ \
		const struct strike s = layer_strike(SIDE, call); \
		enum npu_error code; \
\
		if (s.effect == PLAN_ERROR || s.effect == PLAN_SILENT) \
			return s.code; \
		if (s.effect == PLAN_TWICE) \
			BELOW->name(__VA_ARGS__); \
		code = BELOW->name(__VA_ARGS__); \
		return s.effect == PLAN_ACCEPT ? NPU_SUCCESS : code; \
	}

#define MAKE_CALL(name, call, params, ...) \
	static enum npu_error FN(name) params \
	{ \
		const struct strike s = layer_strike(SIDE, call); \
\
		if (s.effect != PLAN_ERROR && s.effect != PLAN_NULL) \
			return BELOW->name(__VA_ARGS__); \
		*ret = NULL; \
		return s.code; \
	}

#define VOID_CALL(name, call, params, ...) \
	static void FN(name) params \
	{ \
		if (layer_strike(SIDE, call).effect != PLAN_SILENT) \
			BELOW->name(__VA_ARGS__); \
	}

#define NUMBER_CALL(type, name, call, params, ...) \
	static type FN(name) params \
	{ \
		const struct strike s = layer_strike(SIDE, call); \
\
		return BELOW->name(__VA_ARGS__) + (s.effect == PLAN_GROW); \
	}

#define YES_NO_CALL(name, call, params, ...) \
	static bool FN(name) params \
	{ \
		const struct strike s = layer_strike(SIDE, call); \
\
		if (s.effect == PLAN_TRUE || s.effect == PLAN_FALSE) \
			return s.effect == PLAN_TRUE; \
		return BELOW->name(__VA_ARGS__); \
	}

/* What is put off until after the next ResetConfiguration. */
static struct {
	void (*go)(void *handle);
	void *handle;
} FN(late)[LAYER_MAX_LATE];
static size_t FN(n_late);

#define LATE_CALL(name, call, type) \
	static void FN(name##_late)(void *handle) \
	{ \
		BELOW->name(handle); \
	} \
	static void FN(name)(type * handle) \
	{ \
		const struct strike s = layer_strike(SIDE, call); \
\
		if (s.effect == PLAN_LATE && FN(n_late) < LAYER_MAX_LATE) { \
			FN(late)[FN(n_late)].go = FN(name##_late); \
			FN(late)[FN(n_late)++].handle = handle; \
		} else if (s.effect == PLAN_SILENT) { \
			layer_keep(handle); \
		} else { \
			BELOW->name(handle); \
		} \
	}

MAKE_CALL(create_vdevice, PLAN_CREATE_VDEVICE,
	(const struct device_params *p, struct vdevice **ret), p, ret)
CODE_CALL(status, PLAN_STATUS, (struct vdevice * d), d)
CODE_CALL(reset_ccu, PLAN_RESET_CCU, (struct vdevice * d), d)
CODE_CALL(reset, PLAN_RESET, (struct vdevice * d), d)
VOID_CALL(enable_parallel, PLAN_PARALLEL, (struct vdevice * d, bool on), d, on)
LATE_CALL(shutdown, PLAN_SHUTDOWN, struct vdevice)
LATE_CALL(destroy_calbin, PLAN_DESTROY_CALBIN, struct calbin)
NUMBER_CALL(size_t, model_count, PLAN_ALL_MODELS, (struct calbin * c), c)
CODE_CALL(configure, PLAN_CONFIGURE, (struct vdevice * d, struct calbin *c, bool dump_ini), d, c,
	dump_ini)
MAKE_CALL(create_input_buf, PLAN_CREATE_INPUT, (struct model * m, struct inbuf **ret), m, ret)
MAKE_CALL(create_output_buf, PLAN_CREATE_OUTPUT, (struct model * m, struct outbuf **ret), m, ret)
LATE_CALL(destroy_input_buf, PLAN_DESTROY_INPUT, struct inbuf)
LATE_CALL(destroy_output_buf, PLAN_DESTROY_OUTPUT, struct outbuf)
CODE_CALL(slice_input, PLAN_SLICE,
	(struct inbuf * b, const char *tensor, const void *host, uint64_t offset, uint64_t size), b,
	tensor, host, offset, size)
CODE_CALL(slice_output, PLAN_SLICE,
	(struct outbuf * b, const char *tensor, void *host, uint64_t offset, uint64_t size), b,
	tensor, host, offset, size)
VOID_CALL(reset_input, PLAN_RESET_TENSORS, (struct inbuf * b), b)
VOID_CALL(reset_output, PLAN_RESET_TENSORS, (struct outbuf * b), b)
CODE_CALL(set_csr, PLAN_SET_CSR, (struct model * m, const char *name, uint32_t value), m, name,
	value)
NUMBER_CALL(uint32_t, get_csr, PLAN_GET_CSR, (struct model * m, const char *name), m, name)
CODE_CALL(infer, PLAN_INFER,
	(struct vdevice * d, struct model *m, struct inbuf *in, struct outbuf *out,
		enum device_task task),
	d, m, in, out, task)
VOID_CALL(submit_void, PLAN_SUBMIT,
	(struct vdevice * d, struct model *m, struct inbuf *in, struct outbuf *out,
		enum device_task task),
	d, m, in, out, task)
MAKE_CALL(create_kv, PLAN_CREATE_KV, (struct vdevice * d, struct calbin *c, struct kvman **ret), d,
	c, ret)
LATE_CALL(destroy_kv, PLAN_DESTROY_KV, struct kvman)
YES_NO_CALL(kv_can_allocate, PLAN_CAN_ALLOCATE, (struct kvman * k, size_t n), k, n)
VOID_CALL(kv_allocate, PLAN_ALLOCATE, (struct kvman * k, const struct kv_seq_info *seq), k, seq)
VOID_CALL(kv_free, PLAN_FREE, (struct kvman * k, int32_t id), k, id)
YES_NO_CALL(kv_exists, PLAN_EXISTS, (struct kvman * k, int32_t id), k, id)
NUMBER_CALL(int32_t, kv_seq_len, PLAN_SEQ_LEN, (struct kvman * k, int32_t id), k, id)
VOID_CALL(kv_clear, PLAN_CLEAR, (struct kvman * k), k)
NUMBER_CALL(int32_t, kv_pos_min, PLAN_POS_MIN, (struct kvman * k, int32_t id), k, id)
NUMBER_CALL(int32_t, kv_pos_max, PLAN_POS_MAX, (struct kvman * k, int32_t id), k, id)

static enum npu_error FN(get_device_info)(struct vdevice *d, struct device_info *ret)
{
	const struct strike s = layer_strike(SIDE, PLAN_DEVICE_INFO);
	enum npu_error code;

	if (s.effect == PLAN_ERROR || s.effect == PLAN_SILENT)
		return s.code;
	code = BELOW->get_device_info(d, ret);
	if (!code && s.effect == PLAN_OTHER)
		strcpy(ret->runtime, LAYER_OTHER_VERSION);
	return s.effect == PLAN_ACCEPT ? NPU_SUCCESS : code;
}

static enum npu_error FN(reset_configuration)(struct vdevice *d)
{
	const struct strike s = layer_strike(SIDE, PLAN_RESET_CONFIGURATION);
	enum npu_error code;

	if (s.effect == PLAN_ERROR || s.effect == PLAN_SILENT)
		return s.code;
	if (s.effect == PLAN_TWICE)
		BELOW->reset_configuration(d);
	code = BELOW->reset_configuration(d);
	while (FN(n_late)) {
		FN(n_late)--;
		FN(late)[FN(n_late)].go(FN(late)[FN(n_late)].handle);
	}
	return s.effect == PLAN_ACCEPT ? NPU_SUCCESS : code;
}

static char FN(last_folder)[LAYER_PATH_SIZE];

static enum npu_error FN(create_calbin)(struct vdevice *d, const char *path, struct calbin **ret)
{
	const struct strike s = layer_strike(SIDE, PLAN_CREATE_CALBIN);
	enum npu_error code;

	*ret = NULL;
	if (s.effect == PLAN_ERROR || s.effect == PLAN_NULL)
		return s.code;
	code = BELOW->create_calbin(d, path, ret);
	if (code && s.effect == PLAN_LAST && FN(last_folder)[0])
		return BELOW->create_calbin(d, FN(last_folder), ret);
	if (!code && path)
		snprintf(FN(last_folder), LAYER_PATH_SIZE, "%s", path);
	return code;
}

static struct model *FN(get_model_by_name)(struct calbin *c, const char *name)
{
	const struct strike s = layer_strike(SIDE, PLAN_MODEL_BY_NAME);

	return s.effect == PLAN_NULL ? NULL : BELOW->get_model_by_name(c, name);
}

static void FN(get_llm_info)(struct calbin *c, struct llm_info *ret)
{
	const struct strike s = layer_strike(SIDE, PLAN_LLM_INFO);

	BELOW->get_llm_info(c, ret);
	ret->max_seq_len += s.effect == PLAN_GROW;
}

static const char *FN(version)(struct calbin *c)
{
	const struct strike s = layer_strike(SIDE, PLAN_VERSION);

	return s.effect == PLAN_OTHER ? LAYER_OTHER_VERSION : BELOW->version(c);
}

#define GOLDEN_CALL(name) \
	static void FN(name)(struct calbin * c, const char *model, struct buf *ret) \
	{ \
		const struct strike s = layer_strike(SIDE, PLAN_GOLDEN); \
\
		if (s.effect != PLAN_SILENT) \
			BELOW->name(c, model, ret); \
		if (s.effect == PLAN_CORRUPT) \
			layer_spoil_bytes(ret); \
	}

GOLDEN_CALL(get_golden_input)
GOLDEN_CALL(get_golden_output)

/* The device has come to rest, also where it then says an error: nothing is left in its queue. */
static enum npu_error FN(wait)(struct outbuf *out)
{
	const struct strike s = layer_strike(SIDE, PLAN_WAIT);
	enum npu_error code;

	if (s.effect == PLAN_SILENT)
		return NPU_SUCCESS;
	code = BELOW->wait(out);
	if (s.effect == PLAN_TWICE)
		code = BELOW->wait(out);
	if (s.effect == PLAN_ERROR && !code)
		return s.code;
	if (!code)
		layer_spoil_output(s.effect, out);
	return s.effect == PLAN_ACCEPT ? NPU_SUCCESS : code;
}

static enum device_run FN(run_status)(struct outbuf *out)
{
	switch (layer_strike(SIDE, PLAN_RUN_STATUS).effect) {
	case PLAN_CCU:
		return RUN_DONE_CCU_EXCEPTION;
	case PLAN_PENDING:
		return RUN_PENDING;
	case PLAN_RUNNING:
		return RUN_RUNNING;
	case PLAN_DONE:
		return RUN_DONE;
	default:
		return BELOW->run_status(out);
	}
}

static void FN(kv_remove_tokens_at_end)(struct kvman *k, int32_t id, size_t n)
{
	const struct strike s = layer_strike(SIDE, PLAN_REMOVE);

	if (s.effect != PLAN_SILENT)
		BELOW->kv_remove_tokens_at_end(k, id, n + (s.effect == PLAN_GROW));
}

static bool FN(kv_apply)(struct kvman *k, const struct kv_seq_info *seq)
{
	const struct strike s = layer_strike(SIDE, PLAN_APPLY);
	struct kv_seq_info info = *seq;

	if (s.effect == PLAN_TRUE || s.effect == PLAN_FALSE)
		return s.effect == PLAN_TRUE;
	info.n_tokens += s.effect == PLAN_GROW;
	return BELOW->kv_apply(k, &info);
}

static void FN(table)(struct device_ops *t)
{
	FN(n_late) = 0;
	FN(last_folder)[0] = '\0';
#define PUT(name) t->name = BELOW->name ? FN(name) : NULL
	PUT(create_vdevice);
	PUT(status);
	PUT(get_device_info);
	PUT(reset_configuration);
	PUT(reset_ccu);
	PUT(reset);
	PUT(enable_parallel);
	PUT(shutdown);
	PUT(create_calbin);
	PUT(destroy_calbin);
	PUT(model_count);
	PUT(get_model_by_name);
	PUT(get_llm_info);
	PUT(version);
	PUT(get_golden_input);
	PUT(get_golden_output);
	PUT(configure);
	PUT(create_input_buf);
	PUT(create_output_buf);
	PUT(destroy_input_buf);
	PUT(destroy_output_buf);
	PUT(slice_input);
	PUT(slice_output);
	PUT(reset_input);
	PUT(reset_output);
	PUT(set_csr);
	PUT(get_csr);
	PUT(infer);
	PUT(submit_void);
	PUT(wait);
	PUT(run_status);
	PUT(create_kv);
	PUT(destroy_kv);
	PUT(kv_can_allocate);
	PUT(kv_allocate);
	PUT(kv_free);
	PUT(kv_remove_tokens_at_end);
	PUT(kv_exists);
	PUT(kv_apply);
	PUT(kv_seq_len);
	PUT(kv_clear);
	PUT(kv_pos_min);
	PUT(kv_pos_max);
#undef PUT
}

#undef CODE_CALL
#undef MAKE_CALL
#undef VOID_CALL
#undef NUMBER_CALL
#undef YES_NO_CALL
#undef LATE_CALL
#undef GOLDEN_CALL
#undef SIDE
#undef FN
#undef BELOW
