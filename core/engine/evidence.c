/* Reading and writing go through one table a level, and both through one judge of what is evidence;
 * what is written is read back before it is kept, so that nothing is stored that would be refused. */
#include "core/engine/evidence.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/artifact/manifest_read.h"
#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/json.h"

#define FILE_BYTES_MAX (64u << 10)
#define REPAIR         "remove it, and let npufs-admin matrix write it again"
#define SUFFIX         ".json"

/* Each order, and which input its first and second inference had. */
static const struct {
	const char *name;
	unsigned char input[2];
} orders[EVIDENCE_ORDERS] = {
	[EVIDENCE_AUTO] = { "auto", { 0, 1 } },
	[EVIDENCE_PING] = { "ping", { 0, 1 } },
	[EVIDENCE_PONG] = { "pong", { 0, 1 } },
	[EVIDENCE_PP] = { "P-P", { 0, 0 } },
	[EVIDENCE_QQ] = { "Q-Q", { 1, 1 } },
	[EVIDENCE_PQ] = { "P-Q", { 0, 1 } },
	[EVIDENCE_QP] = { "Q-P", { 1, 0 } },
};

const char *evidence_order_name(enum evidence_order o)
{
	return orders[o].name;
}

/* --- what is evidence ------------------------------------------------------------------------- */

static bool is_digest(const char *text)
{
	return strlen(text) == SHA256_HEX_SIZE - 1 &&
		strspn(text, "0123456789abcdef") == SHA256_HEX_SIZE - 1;
}

/* Is the result of inference `at` of an order the one its input had at first? */
static bool agrees(const struct evidence *e, size_t order, size_t at)
{
	const struct evidence_result *r = &e->orders[order], *first = &e->orders[EVIDENCE_AUTO];
	unsigned input = orders[order].input[at];

	return is_digest(r->sha256[at]) && strcmp(r->sha256[at], first->sha256[input]) == 0 &&
		r->kv[at] == first->kv[input];
}

/* What is wrong with it; NULL: nothing. */
static const char *unsound(const struct evidence *e)
{
	const struct evidence_result *first = &e->orders[EVIDENCE_AUTO];

	if (!is_digest(e->artifact))
		return "it names no artifact";
	if (!e->submitted || e->submitted != e->waited)
		return "not every inference that was submitted came back";
	for (size_t i = 0; i < EVIDENCE_ORDERS; i++) {
		if (!e->orders[i].rounds)
			return "an order was not run";
		if (!agrees(e, i, 0) || !agrees(e, i, 1))
			return "an input had different results";
	}
	if (strcmp(first->sha256[0], first->sha256[1]) == 0)
		return "the two inputs had the same result, so none could be mistaken";
	return NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

static const struct spot root_spot = { NULL, "evidence", 0 };

struct root_members {
	const char *schema, *npufs, *recorded, *device, *driver, *firmware, *runtime, *artifact;
	uint64_t submitted, waited;
	const struct json_value *orders;
};

#define AT(member) .name = #member, .offset = offsetof(struct root_members, member)
#define TEXT(member, max) \
	{ \
		AT(member), .kind = MEMBER_TEXT, .high = (max) \
	}
#define ROOM(member) (sizeof((struct evidence *)0)->member - 1)

static const struct member_row root_rows[] = {
	TEXT(schema, 64),
	TEXT(npufs, ROOM(npufs)),
	TEXT(recorded, ROOM(recorded)),
	TEXT(device, ROOM(device.name)),
	TEXT(driver, ROOM(device.driver)),
	TEXT(firmware, ROOM(device.firmware)),
	TEXT(runtime, ROOM(device.runtime)),
	TEXT(artifact, ROOM(artifact)),
	{ AT(submitted), .kind = MEMBER_SIZE, .high = INT64_MAX },
	{ AT(waited), .kind = MEMBER_SIZE, .high = INT64_MAX },
	{ AT(orders), .kind = MEMBER_OBJECT },
};

#undef AT

struct order_members {
	uint64_t rounds;
	const char *first, *second;
	uint32_t first_kv, second_kv;
};

#define AT(member) .name = #member, .offset = offsetof(struct order_members, member)

static const struct member_row order_rows[] = {
	{ AT(rounds), .kind = MEMBER_SIZE, .low = 1, .high = INT64_MAX },
	TEXT(first, SHA256_HEX_SIZE - 1),
	TEXT(second, SHA256_HEX_SIZE - 1),
	{ AT(first_kv), .kind = MEMBER_COUNT, .high = UINT32_MAX },
	{ AT(second_kv), .kind = MEMBER_COUNT, .high = UINT32_MAX },
};

#undef AT

/* The table has seen to it that it fits. */
#define TAKE(place, text) memcpy((place), (text), strlen(text) + 1)

static int take_order(const struct spot *up, const struct json_value *v, size_t order,
	struct evidence *ret, struct fault *f)
{
	const struct spot at = { up, orders[order].name, 0 };
	struct evidence_result *r = &ret->orders[order];
	struct order_members d = { 0 };
	int err = manifest_read_object(&at, v, order_rows, ARRAY_SIZE(order_rows), &d, f);

	if (err)
		return err;
	r->rounds = d.rounds;
	TAKE(r->sha256[0], d.first);
	TAKE(r->sha256[1], d.second);
	r->kv[0] = d.first_kv;
	r->kv[1] = d.second_kv;
	return 0;
}

static int take_orders(const struct json_value *object, struct evidence *ret, struct fault *f)
{
	const struct spot at = { &root_spot, "orders", 0 };
	const struct json_value *members[EVIDENCE_ORDERS];
	struct member_row rows[EVIDENCE_ORDERS];
	int err;

	for (size_t i = 0; i < EVIDENCE_ORDERS; i++)
		rows[i] = (struct member_row){ .name = orders[i].name,
			.kind = MEMBER_OBJECT,
			.offset = i * sizeof members[0] };
	err = manifest_read_object(&at, object, rows, EVIDENCE_ORDERS, members, f);
	for (size_t i = 0; !err && i < EVIDENCE_ORDERS; i++)
		err = take_order(&at, members[i], i, ret, f);
	return err;
}

static int take_root(const struct json_value *root, struct evidence *ret, struct fault *f)
{
	const struct spot schema = { &root_spot, "schema", 0 };
	struct root_members d = { 0 };
	int err = manifest_read_object(&root_spot, root, root_rows, ARRAY_SIZE(root_rows), &d, f);

	if (err)
		return err;
	if (strcmp(d.schema, EVIDENCE_SCHEMA) != 0)
		return manifest_refuse(&schema, json_member(root, "schema"), f, REPAIR,
			"must be " EVIDENCE_SCHEMA);
	TAKE(ret->npufs, d.npufs);
	TAKE(ret->recorded, d.recorded);
	TAKE(ret->device.name, d.device);
	TAKE(ret->device.driver, d.driver);
	TAKE(ret->device.firmware, d.firmware);
	TAKE(ret->device.runtime, d.runtime);
	TAKE(ret->artifact, d.artifact);
	ret->submitted = d.submitted;
	ret->waited = d.waited;
	return take_orders(d.orders, ret, f);
}

int evidence_parse(const char *text, size_t len, struct evidence *ret, struct fault *f)
{
	struct evidence e = { .npufs = "" };
	struct json_value *root = NULL;
	int err = json_parse(text, len, &root, f);

	if (!err)
		err = take_root(root, &e, f);
	json_free(root);
	if (!err && unsound(&e))
		err = manifest_refuse(&root_spot, NULL, f, REPAIR, "%s", unsound(&e));
	if (!err)
		*ret = e;
	return err;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void add_order(struct json_value *to, size_t order, const struct evidence_result *r)
{
	struct json_value *o = json_add_object(to, orders[order].name);

	json_add_uint(o, "rounds", r->rounds);
	json_add_string(o, "first", r->sha256[0]);
	json_add_string(o, "second", r->sha256[1]);
	json_add_uint(o, "first_kv", r->kv[0]);
	json_add_uint(o, "second_kv", r->kv[1]);
}

static int render(const struct evidence *e, struct buf *out)
{
	struct json_value *doc = json_new_object(), *all;
	char now[CLOCK_TEXT_SIZE];
	int err;

	json_add_string(doc, "schema", EVIDENCE_SCHEMA);
	json_add_string(doc, "npufs", e->npufs);
	json_add_string(doc, "recorded", clock_text(clock_wall(), now));
	json_add_string(doc, "device", e->device.name);
	json_add_string(doc, "driver", e->device.driver);
	json_add_string(doc, "firmware", e->device.firmware);
	json_add_string(doc, "runtime", e->device.runtime);
	json_add_string(doc, "artifact", e->artifact);
	json_add_uint(doc, "submitted", e->submitted);
	json_add_uint(doc, "waited", e->waited);
	all = json_add_object(doc, "orders");
	for (size_t i = 0; i < EVIDENCE_ORDERS; i++)
		add_order(all, i, &e->orders[i]);
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

static int open_evidence(const char *store, bool make, int *ret)
{
	AUTO_CLOSE int root = -1;
	int err = files_open_root(store, FILES_OWN, &root);

	if (!err && make)
		err = files_make_folder(root, EVIDENCE_FOLDER, 0700);
	return err ? err : files_open_folder(root, EVIDENCE_FOLDER, FILES_OWN, ret);
}

static bool is_name(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= EVIDENCE_NAME_MAX && name[0] != '.' &&
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
		len;
}

int evidence_write(const char *store, const struct evidence *e)
{
	char file[EVIDENCE_NAME_MAX + sizeof SUFFIX];
	AUTO_BUF struct buf text = BUF_INIT;
	AUTO_CLOSE int folder = -1;
	struct evidence again;
	int err = is_name(e->name) ? render(e, &text) : -EINVAL;

	if (!err)
		err = evidence_parse(text.data, text.len, &again, NULL);
	if (!err)
		err = open_evidence(store, true, &folder);
	if (err)
		return err;
	snprintf(file, sizeof file, "%s" SUFFIX, e->name);
	return files_replace(folder, file, 0600, text.data, text.len);
}

/* --- checking --------------------------------------------------------------------------------- */

/* What evidence is bound to, a bit each, in the order of the message. */
static const char *const bonds[] = { "device", "driver", "firmware", "runtime", "artifact" };

static unsigned differences(const struct evidence *e, const struct device_info *d,
	const char *artifact)
{
	const char *const pairs[][2] = {
		{ e->device.name, d->name },
		{ e->device.driver, d->driver },
		{ e->device.firmware, d->firmware },
		{ e->device.runtime, d->runtime },
		{ e->artifact, artifact },
	};
	unsigned bits = 0;

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		bits |= (unsigned)(strcmp(pairs[i][0], pairs[i][1]) != 0) << i;
	return bits;
}

struct search {
	int folder;
	const struct device_info *device;
	const char *artifact;
	bool found;
	unsigned nearest;     /* what differs there; once found */
	struct fault in_file; /* what is wrong in the file looked at last */
};

/* Fewer differences are nearer; of as many, always the same one, in whatever order files come. */
static bool nearer(unsigned a, unsigned b)
{
	int na = __builtin_popcount(a), nb = __builtin_popcount(b);

	return na < nb || (na == nb && a < b);
}

static bool is_evidence_file(const char *path)
{
	size_t len = strlen(path);

	return path[0] != '.' && !strchr(path, '/') && len > strlen(SUFFIX) &&
		strcmp(path + len - strlen(SUFFIX), SUFFIX) == 0;
}

static int look_at(void *context, const char *path)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct search *s = context;
	struct evidence e;
	unsigned bits;
	int err;

	if (!is_evidence_file(path))
		return 0;
	err = files_load(s->folder, path, FILES_OWN, FILE_BYTES_MAX, &text);
	if (!err)
		err = evidence_parse(buf_text(&text), text.len, &e, &s->in_file);
	if (err)
		return err;
	bits = differences(&e, s->device, s->artifact);
	if (!s->found || nearer(bits, s->nearest))
		s->nearest = bits;
	s->found = true;
	return 0;
}

static int stale(unsigned bits, struct fault *why)
{
	char list[sizeof why->field] = "";

	for (size_t i = 0, len = 0; i < ARRAY_SIZE(bonds); i++)
		if (bits >> i & 1)
			len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
				len ? ", " : "", bonds[i]);
	return fault_at(why, -ESTALE, list, -1, "run npufs-admin matrix again",
		"the evidence is for another %s", list);
}

static int search(struct search *s, struct fault *why)
{
	char where[FILES_PATH_MAX] = "";
	int err = files_walk(s->folder, FILES_OWN, look_at, s, where);

	if (err)
		return fault_set(why, err, REPAIR, "evidence/%s: %s", where,
			s->in_file.err ? s->in_file.reason : strerror(-err));
	if (!s->found)
		return fault_set(why, -ENOENT, "run npufs-admin matrix", "there is no evidence");
	return s->nearest ? stale(s->nearest, why) : 0;
}

int evidence_check(const char *store, const struct device_info *device, const char *artifact_sha256,
	struct fault *why)
{
	AUTO_CLOSE int folder = -1;
	struct search s = { .device = device, .artifact = artifact_sha256, .in_file = FAULT_NONE };
	int err = open_evidence(store, false, &folder);

	if (err)
		return fault_set(why, err, "run npufs-admin matrix",
			"the evidence cannot be read: %s", strerror(-err));
	s.folder = folder;
	return search(&s, why);
}
