/* The checked caller's KV: what a void call should have done is asked for after it. */
#include "core/device_impl.h"

enum npu_error device_kv_open(struct device *d)
{
	enum npu_error code;

	if (!d->configured)
		return NPU_MISS_CONFIGURATION;
	if (!d->ops->create_kv)
		return NPU_DEVICE_UNSUPPORT;
	if (d->kv)
		return NPU_MEMORY_ALREADY_REGISTERED;
	device_count(CALL_KV);
	code = d->ops->create_kv(d->vdev, d->calbin, &d->kv);
	return code || d->kv ? code : NPU_MEMORY_ALLOCATION;
}

bool device_kv_can_allocate(struct device *d)
{
	device_count(CALL_KV);
	return d->kv && d->ops->kv_can_allocate(d->kv, 1);
}

enum npu_error device_kv_allocate(struct device *d, int32_t seq)
{
	const struct kv_seq_info info = { .seq_id = seq, .n_tokens = 0 };

	if (seq < 0 || d->ops->kv_exists(d->kv, seq))
		return NPU_INVALID_VALUE;
	if (!device_kv_can_allocate(d))
		return NPU_MEMORY_ALLOCATION;
	device_count(CALL_KV);
	d->ops->kv_allocate(d->kv, &info);
	if (!d->ops->kv_exists(d->kv, seq) || d->ops->kv_seq_len(d->kv, seq) != 0)
		return NPU_NOT_EXPECTED;
	return NPU_SUCCESS;
}

enum npu_error device_kv_free(struct device *d, int32_t seq)
{
	device_count(CALL_KV);
	d->ops->kv_free(d->kv, seq);
	return d->ops->kv_exists(d->kv, seq) ? NPU_NOT_EXPECTED : NPU_SUCCESS;
}

enum npu_error device_kv_apply(struct device *d, int32_t seq, int32_t n_tokens)
{
	const struct kv_seq_info info = { .seq_id = seq, .n_tokens = n_tokens };
	int32_t len = device_kv_len(d, seq);

	if (len < 0 || n_tokens < 1)
		return NPU_INVALID_VALUE;
	if ((uint32_t)len > d->llm.max_seq_len ||
		(uint32_t)n_tokens > d->llm.max_seq_len - (uint32_t)len)
		return NPU_OUT_OF_RANGE;
	device_count(CALL_KV);
	if (!d->ops->kv_apply(d->kv, &info))
		return NPU_NOT_EXPECTED; /* only a bool: no reason to be had */
	return device_kv_len(d, seq) == len + n_tokens ? NPU_SUCCESS : NPU_NOT_EXPECTED;
}

int32_t device_kv_len(struct device *d, int32_t seq)
{
	return d->ops->kv_seq_len(d->kv, seq);
}

enum npu_error device_kv_truncate(struct device *d, int32_t seq, int32_t len)
{
	int32_t now = device_kv_len(d, seq);

	if (now < 0 || len < 0 || len > now)
		return NPU_INVALID_VALUE;
	if (len == now)
		return NPU_SUCCESS;
	device_count(CALL_KV);
	d->ops->kv_remove_tokens_at_end(d->kv, seq, (size_t)(now - len));
	return device_kv_len(d, seq) == len ? NPU_SUCCESS : NPU_NOT_EXPECTED;
}

enum npu_error device_kv_clear(struct device *d, int32_t seq)
{
	device_count(CALL_KV);
	d->ops->kv_clear(d->kv);
	return d->ops->kv_exists(d->kv, seq) ? NPU_NOT_EXPECTED : NPU_SUCCESS;
}

enum npu_error device_kv_range(struct device *d, int32_t seq, int32_t *ret_min, int32_t *ret_max)
{
	if (!d->ops->kv_pos_min || !d->ops->kv_pos_max)
		return NPU_DEVICE_UNSUPPORT;
	device_count(CALL_KV);
	*ret_min = d->ops->kv_pos_min(d->kv, seq);
	*ret_max = d->ops->kv_pos_max(d->kv, seq);
	return NPU_SUCCESS;
}
