#include "tests/fake_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 8
#define MAX_SEQS  64
#define MAX_HOST  4

struct rule {
	const char *call;
	unsigned nth;
	enum npu_error code;
};

struct seq {
	int32_t id, len;
	bool there;
};

struct vdevice {
	bool configured;
};

struct calbin {
	char path[512];
};

struct model {
	const struct model_info *info;
	uint32_t cur, past;
};

struct inbuf {
	const void *host[MAX_HOST];
};

struct outbuf {
	void *host[MAX_HOST];
	struct model *model;
	struct inbuf *in;
	uint32_t past; /* as it was at submit */
};

struct kvman {
	struct seq seqs[MAX_SEQS];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* by mutex */
static char calls[1 << 16];
static size_t calls_len;
static struct rule rules[MAX_RULES];
static bool hold, held;
static unsigned hold_at; /* so many waits from now; 0: none */

struct fake_device fake;
static struct model models[8];

/* --- the LLM that it is at first -------------------------------------------------------------- */

static const struct tensor_spec tokens4 = { "tokens", DTYPE_INT32, 1, { FAKE_UBATCH } };
static const struct tensor_spec tokens1 = { "tokens", DTYPE_INT32, 1, { 1 } };
static const struct tensor_spec logits = { "logits", DTYPE_FLOAT32, 1, { FAKE_VOCAB } };
static const struct tensor_spec length = { "kv_length", DTYPE_INT32, 1, { 1 } };

static const struct model_info llm_models[] = {
	{ "prefill", "prefill", &tokens4, &logits, 1, 1, { CSR_CUR_LEN, CSR_PAST_LEN }, 2 },
	{ "decode", "decode", &tokens1, &logits, 1, 1, { CSR_CUR_LEN, CSR_PAST_LEN }, 2 },
	{ "kv_update", "kv_update", NULL, &length, 0, 1, { CSR_CUR_LEN, CSR_PAST_LEN }, 2 },
};
static struct model_info llm_copy[3];

#define CSRS   "\"csrs\":[\"cur_seq_len[0]\",\"past_kv_cur_seq_len[0]\"]"
#define LOGITS "{\"name\":\"logits\",\"dtype\":\"float32\",\"shape\":[257]}"

const char fake_manifest[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"llm\",\"description\":\"for tests\","
	"\"calbin_version\":\"1.0\",\"compatible\":{\"runtime\":[\"0.7.6\"],\"driver\":[\"d1\"],"
	"\"firmware\":[\"f1\"]},\"batch\":1,\"context_limit\":16,"
	"\"tokenizer\":{\"type\":\"bytes\",\"vocab_size\":257,\"prefix\":[],\"suffix\":[],\"stop\":"
	"[256]},"
	"\"defaults\":{\"temperature\":0},\"example\":{\"prompt\":\"hello\"},\"programs\":["
	"{\"name\":\"prefill\",\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[4]}]"
	","
	"\"outputs\":[" LOGITS "]," CSRS "},"
	"{\"name\":\"decode\",\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[1]}],"
	"\"outputs\":[" LOGITS "]," CSRS "},"
	"{\"name\":\"kv_update\",\"inputs\":[],"
	"\"outputs\":[{\"name\":\"kv_length\",\"dtype\":\"int32\",\"shape\":[1]}]," CSRS
	"}],\"files\":[]}";

void fake_reset(void)
{
	pthread_mutex_lock(&mutex);
	memcpy(llm_copy, llm_models, sizeof llm_copy);
	memset(&fake, 0, sizeof fake);
	fake.models = llm_copy;
	fake.n_models = 3;
	fake.llm = (struct llm_info){ 1, FAKE_CONTEXT };
	fake.info = (struct device_info){ "0.7.6", "d1", "f1", "fake" };
	fake.version = "1.0";
	fake.stop_len = UINT32_MAX;
	fake.kv_capacity = 4;
	fake.status = RUN_DONE;
	memset(rules, 0, sizeof rules);
	calls_len = 0;
	hold = held = false;
	hold_at = 0;
	pthread_mutex_unlock(&mutex);
}

/* --- what tests ask --------------------------------------------------------------------------- */

void fake_fail(const char *call, unsigned nth, enum npu_error code)
{
	size_t i = 0;

	pthread_mutex_lock(&mutex);
	while (i < MAX_RULES - 1 && rules[i].call)
		i++;
	rules[i] = (struct rule){ call, nth, code };
	pthread_mutex_unlock(&mutex);
}

void fake_log(char *ret, size_t size)
{
	pthread_mutex_lock(&mutex);
	snprintf(ret, size, "%.*s", (int)calls_len, calls);
	pthread_mutex_unlock(&mutex);
}

void fake_log_clear(void)
{
	pthread_mutex_lock(&mutex);
	calls_len = 0;
	pthread_mutex_unlock(&mutex);
}

unsigned fake_count(const char *call)
{
	size_t len = strlen(call);
	unsigned n = 0;

	pthread_mutex_lock(&mutex);
	calls[calls_len] = '\0';
	for (const char *p = calls; *p; p = strchr(p, ' ') + 1)
		n += strncmp(p, call, len) == 0 && p[len] == ' ';
	pthread_mutex_unlock(&mutex);
	return n;
}

void fake_hold(void)
{
	pthread_mutex_lock(&mutex);
	hold = true;
	pthread_mutex_unlock(&mutex);
}

void fake_hold_at(unsigned nth)
{
	pthread_mutex_lock(&mutex);
	hold_at = nth;
	pthread_mutex_unlock(&mutex);
}

void fake_await_held(void)
{
	pthread_mutex_lock(&mutex);
	while (!held)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
}

void fake_let_go(void)
{
	pthread_mutex_lock(&mutex);
	hold = held = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

/* Note a call and say how it is to end. A log that is full goes on without. */
static enum npu_error called(const char *call)
{
	enum npu_error code = NPU_SUCCESS;
	size_t len = strlen(call);

	pthread_mutex_lock(&mutex);
	if (calls_len + len + 2 < sizeof calls) {
		memcpy(calls + calls_len, call, len);
		calls[calls_len + len] = ' ';
		calls_len += len + 1;
	}
	for (size_t i = 0; i < MAX_RULES; i++) {
		struct rule *r = &rules[i];

		if (!r->call || strcmp(r->call, call) != 0)
			continue;
		if (r->nth <= 1)
			code = r->code;
		if (r->nth == 1)
			r->call = NULL;
		else if (r->nth > 1)
			r->nth--;
	}
	pthread_mutex_unlock(&mutex);
	return code;
}

/* --- the table -------------------------------------------------------------------------------- */

static enum npu_error create_vdevice(const struct device_params *p, struct vdevice **ret)
{
	enum npu_error code = called("create_vdevice");

	(void)p;
	if (!code)
		*ret = calloc(1, sizeof **ret);
	return code;
}

static enum npu_error status(struct vdevice *d)
{
	(void)d;
	return called("status");
}

static enum npu_error get_device_info(struct vdevice *d, struct device_info *ret)
{
	(void)d;
	*ret = fake.info;
	return called("info");
}

static enum npu_error reset_configuration(struct vdevice *d)
{
	d->configured = false;
	return called("reset_configuration");
}

static void enable_parallel(struct vdevice *d, bool on)
{
	(void)d;
	called(on ? "parallel" : "serial");
}

static void shutdown_device(struct vdevice *d)
{
	called("shutdown");
	free(d);
}

static enum npu_error create_calbin(struct vdevice *d, const char *path, struct calbin **ret)
{
	enum npu_error code = called("create_calbin");

	(void)d;
	if (!code && path && fake.broken_path && strstr(path, fake.broken_path))
		code = NPU_INVALID_CALBIN;
	if (code)
		return code;
	*ret = calloc(1, sizeof **ret);
	for (size_t i = 0; i < fake.n_models; i++)
		models[i] = (struct model){ .info = &fake.models[i] };
	return NPU_SUCCESS;
}

static void destroy_calbin(struct calbin *c)
{
	called("destroy_calbin");
	free(c);
}

static size_t model_count(struct calbin *c)
{
	(void)c;
	return fake.n_models;
}

static struct model *model_at(struct calbin *c, size_t i)
{
	(void)c;
	return &models[i];
}

static struct model *get_model_by_name(struct calbin *c, const char *name)
{
	(void)c;
	for (size_t i = 0; i < fake.n_models; i++)
		if (strcmp(fake.models[i].name, name) == 0)
			return &models[i];
	return NULL;
}

static void get_llm_info(struct calbin *c, struct llm_info *ret)
{
	(void)c;
	*ret = fake.llm;
}

static const char *version(struct calbin *c)
{
	(void)c;
	return fake.version;
}

static void get_golden_input(struct calbin *c, const char *model, struct buf *ret)
{
	(void)c;
	(void)model;
	if (fake.golden_in)
		buf_puts(ret, fake.golden_in);
}

static void get_golden_output(struct calbin *c, const char *model, struct buf *ret)
{
	(void)c;
	(void)model;
	if (fake.golden_out)
		buf_puts(ret, fake.golden_out);
}

static const struct model_info *model_info(struct model *m)
{
	return m->info;
}

static enum npu_error configure(struct vdevice *d, struct calbin *c, bool dump_ini)
{
	enum npu_error code = called(dump_ini ? "configure_with_ini" : "configure");

	(void)c;
	if (!code && d->configured)
		code = NPU_ALREADY_CONFIGURED;
	d->configured |= !code;
	return code;
}

static enum npu_error create_input_buf(struct model *m, struct inbuf **ret)
{
	enum npu_error code = called("create_input_buf");

	(void)m;
	if (!code)
		*ret = calloc(1, sizeof **ret);
	return code;
}

static enum npu_error create_output_buf(struct model *m, struct outbuf **ret)
{
	enum npu_error code = called("create_output_buf");

	(void)m;
	if (!code)
		*ret = calloc(1, sizeof **ret);
	return code;
}

static void destroy_input_buf(struct inbuf *b)
{
	called("destroy_input_buf");
	free(b);
}

static void destroy_output_buf(struct outbuf *b)
{
	called("destroy_output_buf");
	free(b);
}

/* The tests' programs have their tensors in the order in which they are bound. */
static enum npu_error slice_input(struct inbuf *b, const char *tensor, const void *host,
	uint64_t offset, uint64_t size)
{
	(void)tensor;
	(void)offset;
	(void)size;
	for (size_t i = 0; i < MAX_HOST; i++)
		if (!b->host[i]) {
			b->host[i] = host;
			break;
		}
	return called("slice_input");
}

static enum npu_error slice_output(struct outbuf *b, const char *tensor, void *host,
	uint64_t offset, uint64_t size)
{
	(void)tensor;
	(void)offset;
	(void)size;
	for (size_t i = 0; i < MAX_HOST; i++)
		if (!b->host[i]) {
			b->host[i] = host;
			break;
		}
	return called("slice_output");
}

static void reset_input(struct inbuf *b)
{
	called("reset_input");
	memset(b->host, 0, sizeof b->host);
}

static void reset_output(struct outbuf *b)
{
	called("reset_output");
	memset(b->host, 0, sizeof b->host);
}

static enum npu_error set_csr(struct model *m, const char *name, uint32_t value)
{
	char call[64];

	snprintf(call, sizeof call, "%s=%u", strcmp(name, CSR_CUR_LEN) == 0 ? "cur" : "past",
		value);
	if (strcmp(name, CSR_CUR_LEN) == 0)
		m->cur = value;
	else
		m->past = value;
	called(call);
	return called("set_csr");
}

static uint32_t get_csr(struct model *m, const char *name)
{
	return strcmp(name, CSR_CUR_LEN) == 0 ? m->cur : m->past;
}

static enum npu_error infer(struct vdevice *d, struct model *m, struct inbuf *in,
	struct outbuf *out, enum device_task task)
{
	char call[80];
	enum npu_error code;

	snprintf(call, sizeof call, "infer:%s", m->info->name);
	called(call);
	code = called("infer");
	if (task != DEVICE_AUTO)
		called(task == DEVICE_PING ? "ping" : "pong");
	if (!code && !d->configured)
		code = NPU_MISS_CONFIGURATION;
	out->model = m;
	out->in = in;
	out->past = m->past;
	return code;
}

static void compute_llm(const struct outbuf *b)
{
	float *l = b->host[0];
	uint32_t n = b->past;

	for (int i = 0; i < FAKE_VOCAB; i++)
		l[i] = 0;
	l[n >= fake.stop_len ? FAKE_END : 'a' + (int)(n % 26)] = 1;
}

static struct seq *applied; /* the last one */

static void commit_kv(const struct outbuf *b)
{
	*(int32_t *)b->host[0] = (int32_t)b->past;
	if (fake.short_commit && applied)
		applied->len--;
}

static void compute(const struct outbuf *b)
{
	const struct model_info *info = b->model->info;
	size_t bytes = b->host[0] ? (size_t)tensor_bytes(&info->outputs[0]) : 0;

	if (strcmp(info->name, "prefill") == 0 || strcmp(info->name, "decode") == 0)
		compute_llm(b);
	else if (strcmp(info->name, "kv_update") == 0)
		commit_kv(b);
	else if (info->outputs[0].dtype == DTYPE_FLOAT32)
		for (size_t i = 0; i < bytes / 4; i++)
			((float *)b->host[0])[i] = 2 * ((const float *)b->in->host[0])[i];
	else
		memset(b->host[0], 0, bytes);
	for (size_t i = 1; i < info->n_outputs && i < MAX_HOST; i++)
		if (b->host[i])
			memset(b->host[i], 0, (size_t)tensor_bytes(&info->outputs[i]));
	if (fake.poison) {
		uint64_t bits = fake.poison_bits;

		memcpy(b->host[0], &bits, dtype_size(info->outputs[0].dtype));
	}
}

static enum npu_error wait_output(struct outbuf *b)
{
	enum npu_error code = called("wait");

	pthread_mutex_lock(&mutex);
	if (hold_at && --hold_at == 0)
		hold = true;
	while (hold) {
		held = true;
		pthread_cond_broadcast(&changed);
		pthread_cond_wait(&changed, &mutex);
	}
	held = false;
	pthread_mutex_unlock(&mutex);
	if (!code)
		compute(b);
	return code;
}

static enum device_run run_status(struct outbuf *b)
{
	(void)b;
	called("run_status");
	return fake.status;
}

/* --- KV --------------------------------------------------------------------------------------- */

static struct seq *find(struct kvman *k, int32_t id)
{
	for (size_t i = 0; i < MAX_SEQS; i++)
		if (k->seqs[i].there && k->seqs[i].id == id)
			return &k->seqs[i];
	return NULL;
}

static unsigned alive(const struct kvman *k)
{
	unsigned n = 0;

	for (size_t i = 0; i < MAX_SEQS; i++)
		n += k->seqs[i].there;
	return n;
}

static enum npu_error create_kv(struct vdevice *d, struct calbin *c, struct kvman **ret)
{
	enum npu_error code = called("create_kv");

	(void)d;
	(void)c;
	if (!code)
		*ret = calloc(1, sizeof **ret);
	return code;
}

static void destroy_kv(struct kvman *k)
{
	called("destroy_kv");
	free(k);
}

static bool kv_can_allocate(struct kvman *k, size_t n)
{
	return alive(k) + n <= fake.kv_capacity;
}

static void kv_allocate(struct kvman *k, const struct kv_seq_info *s)
{
	size_t i = 0;

	called("kv_allocate");
	if (fake.silent_allocate)
		return;
	while (i < MAX_SEQS - 1 && k->seqs[i].there)
		i++;
	k->seqs[i] = (struct seq){ s->seq_id, s->n_tokens, true };
}

static void kv_free(struct kvman *k, int32_t id)
{
	struct seq *s = find(k, id);

	called("kv_free");
	if (s && !fake.silent_free)
		s->there = false;
}

static void kv_remove_tokens_at_end(struct kvman *k, int32_t id, size_t n)
{
	struct seq *s = find(k, id);

	called("kv_remove");
	if (s && !fake.silent_remove)
		s->len -= (int32_t)n;
}

static bool kv_exists(struct kvman *k, int32_t id)
{
	return find(k, id) != NULL;
}

static bool kv_apply(struct kvman *k, const struct kv_seq_info *info)
{
	struct seq *s = find(k, info->seq_id);

	if (called("kv_apply") || !s)
		return false;
	applied = s;
	s->len += info->n_tokens - fake.short_apply;
	return !fake.refused_apply;
}

static int32_t kv_seq_len(struct kvman *k, int32_t id)
{
	struct seq *s = find(k, id);

	return s ? s->len : -1;
}

static void kv_clear(struct kvman *k)
{
	memset(k->seqs, 0, sizeof k->seqs);
}

#define OPS(text) \
	.name = "fake", .summary = "for tests", .own_manifest = (text), \
	.create_vdevice = create_vdevice, .status = status, .get_device_info = get_device_info, \
	.reset_configuration = reset_configuration, .shutdown = shutdown_device, \
	.create_calbin = create_calbin, .destroy_calbin = destroy_calbin, \
	.model_count = model_count, .model_at = model_at, .get_model_by_name = get_model_by_name, \
	.get_llm_info = get_llm_info, .version = version, .get_golden_input = get_golden_input, \
	.get_golden_output = get_golden_output, .model_info = model_info, .configure = configure, \
	.create_input_buf = create_input_buf, .create_output_buf = create_output_buf, \
	.destroy_input_buf = destroy_input_buf, .destroy_output_buf = destroy_output_buf, \
	.slice_input = slice_input, .slice_output = slice_output, .reset_input = reset_input, \
	.reset_output = reset_output, .set_csr = set_csr, .get_csr = get_csr, .infer = infer, \
	.wait = wait_output, .run_status = run_status, .create_kv = create_kv, \
	.destroy_kv = destroy_kv, .kv_can_allocate = kv_can_allocate, .kv_allocate = kv_allocate, \
	.kv_free = kv_free, .kv_remove_tokens_at_end = kv_remove_tokens_at_end, \
	.kv_exists = kv_exists, .kv_apply = kv_apply, .kv_seq_len = kv_seq_len, \
	.kv_clear = kv_clear

const struct device_ops fake_ops = { OPS(fake_manifest) };
const struct device_ops fake_pair_ops = { OPS(fake_manifest), .enable_parallel = enable_parallel };
const struct device_ops fake_store_ops = { OPS(NULL) };
