/* Every value is first read as a number: a flag is 1, a word is its place, a string is its
 * length. Then the range applies to all types alike, and storing is a matter of width. Defaults
 * and ranges go through the same reader as the user's text, so the table holds no number twice. */
#include "mountopts/options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const struct unit no_units[] = { { "", 1 }, { NULL, 0 } };

static const struct unit size_units[] = {
	{ "", 1 },
	{ "k", 1ULL << 10 },
	{ "K", 1ULL << 10 },
	{ "M", 1ULL << 20 },
	{ "G", 1ULL << 30 },
	{ "T", 1ULL << 40 },
	{ NULL, 0 },
};

static const struct unit duration_units[] = {
	{ "us", 1 },
	{ "ms", 1000 },
	{ "s", 1000000 },
	{ "", 1000000 },
	{ "m", 60 * 1000000ULL },
	{ "h", 3600 * 1000000ULL },
	{ "d", 86400 * 1000000ULL },
	{ NULL, 0 },
};

struct type_row {
	const char *sample; /* what follows the name in the help */
	const char *form;   /* what to give, for a refusal */
	char radix;
	const struct unit *units; /* NULL: not a number */
};

static const struct type_row types[] = {
	[OPTION_FLAG] = { "", NULL, 0, NULL },
	[OPTION_UINT] = { "=N", "a whole number", 10, no_units },
	[OPTION_SIZE] = { "=SIZE", "bytes, such as 512k, 4M or 1G", 10, size_units },
	[OPTION_DURATION] = { "=TIME", "a time, such as 200ms, 3s or 5m", 10, duration_units },
	[OPTION_MODE] = { "=MODE", "an octal number, such as 0077", 8, no_units },
	[OPTION_WORD] = { "=WORD", "one of the words", 0, NULL },
	[OPTION_STRING] = { "=TEXT", "text of so many bytes", 0, NULL },
};

#define OFFSET_FLAG(name)     offsetof(struct mount_options, name)
#define OFFSET_UINT(name)     offsetof(struct mount_options, name)
#define OFFSET_SIZE(name)     offsetof(struct mount_options, name)
#define OFFSET_DURATION(name) offsetof(struct mount_options, name##_us)
#define OFFSET_MODE(name)     offsetof(struct mount_options, name)
#define OFFSET_WORD(name)     offsetof(struct mount_options, name)
#define OFFSET_STRING(name)   offsetof(struct mount_options, name)

static const struct option_row rows[] = {
#define OPTION(name, type, def, range, help) \
	{ #name, OPTION_##type, def, range, help, OFFSET_##type(name) },
#include "mountopts/options.def"
#undef OPTION
};

/* Settled by mount(8), systemd, the kernel or libfuse before or without us. */
static const char *const ignored[] = {
	"defaults",
	"auto",
	"noauto",
	"user",
	"user=*",
	"users",
	"nouser",
	"owner",
	"group",
	"_netdev",
	"_rnetdev",
	"nofail",
	"nonempty",
	"exec",
	"noexec",
	"suid",
	"nosuid",
	"dev",
	"nodev",
	"async",
	"sync",
	"atime",
	"noatime",
	"diratime",
	"nodiratime",
	"relatime",
	"norelatime",
	"strictatime",
	"nostrictatime",
	"lazytime",
	"nolazytime",
	"iversion",
	"noiversion",
	"rw",
	"allow_other",
	"comment=*",
	"x-*",
	"X-*",
	NULL,
};

struct refused_row {
	const char *name;
	const char *reason;
	const char *action;
};

/* Known elsewhere; ignoring them would promise what the mount does not do. */
static const struct refused_row refused[] = {
	{ "ro", "a read-only mount could take no request",
		"leave it out; file modes and \"private\" restrict who may write" },
	{ "remount", "options are fixed for the life of a mount", "unmount and mount again" },
	{ "default_permissions", "access is decided and recorded here, not by the kernel",
		"leave it out" },
	{ "allow_root", "only the mounting user or everybody can be served",
		"leave it out, or use \"private\"" },
};

const struct option_row *options_rows(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(rows);
	return rows;
}

const char *const *options_ignored(void)
{
	return ignored;
}

/* --- values ----------------------------------------------------------------------------------- */

/* Digits, then exactly one of the units. */
static bool read_number(const char *text, size_t len, const struct type_row *type, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i;

	for (i = 0; i < len && text[i] >= '0' && text[i] < '0' + type->radix; i++)
		if (__builtin_mul_overflow(v, (uint64_t)type->radix, &v) ||
			__builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v))
			return false;
	if (i == 0)
		return false;
	for (const struct unit *u = type->units; u->suffix; u++)
		if (strlen(u->suffix) == len - i && memcmp(u->suffix, text + i, len - i) == 0)
			return !__builtin_mul_overflow(v, u->factor, ret);
	return false;
}

static bool read_word(const char *words, const char *text, uint64_t *ret)
{
	size_t len = strlen(text);

	for (uint64_t place = 0;; place++) {
		size_t n = strcspn(words, "|");

		if (n == len && memcmp(words, text, n) == 0) {
			*ret = place;
			return true;
		}
		if (words[n] == '\0')
			return false;
		words += n + 1;
	}
}

static bool read_value(const struct option_row *row, const char *text, uint64_t *ret)
{
	if (row->type == OPTION_WORD)
		return read_word(row->range, text, ret);
	if (row->type == OPTION_STRING) {
		*ret = strlen(text);
		return true;
	}
	return read_number(text, strlen(text), &types[row->type], ret);
}

static bool in_range(const struct option_row *row, uint64_t v)
{
	const struct type_row *type = &types[row->type == OPTION_STRING ? OPTION_UINT : row->type];
	const char *dots = strstr(row->range, "..");
	uint64_t low = 0, high = 0;

	if (row->type == OPTION_WORD)
		return true;
	read_number(row->range, (size_t)(dots - row->range), type, &low);
	read_number(dots + 2, strlen(dots + 2), type, &high);
	return v >= low && v <= high;
}

static void store(const struct option_row *row, uint64_t v, const char *text,
	struct mount_options *o)
{
	char *at = (char *)o + row->offset;
	uint32_t narrow = (uint32_t)v;
	bool flag = v != 0;

	switch (row->type) {
	case OPTION_FLAG:
		memcpy(at, &flag, sizeof flag);
		break;
	case OPTION_SIZE:
	case OPTION_DURATION:
		memcpy(at, &v, sizeof v);
		break;
	case OPTION_UINT:
	case OPTION_MODE:
	case OPTION_WORD:
		memcpy(at, &narrow, sizeof narrow);
		break;
	case OPTION_STRING:
		assert(v < OPTION_STRING_SIZE);
		memcpy(at, text, v + 1);
		break;
	}
}

static bool set(const struct option_row *row, const char *text, struct mount_options *o)
{
	uint64_t v = 0;

	if (!read_value(row, text, &v) || !in_range(row, v))
		return false;
	store(row, v, text, o);
	return true;
}

void options_defaults(struct mount_options *o)
{
	memset(o, 0, sizeof *o);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool good = rows[i].type == OPTION_FLAG || set(&rows[i], rows[i].def, o);

		assert(good);
		(void)good;
	}
}

/* --- lists ------------------------------------------------------------------------------------ */

static const struct option_row *find_row(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

static bool is_ignored(const char *item)
{
	for (const char *const *name = ignored; *name; name++) {
		size_t n = strlen(*name);

		if ((*name)[n - 1] == '*')
			n--;
		else
			n++; /* its NUL: the whole */
		if (strncmp(item, *name, n) == 0)
			return true;
	}
	return false;
}

static int unknown(const char *name, struct fault *f)
{
	const char *names[ARRAY_SIZE(rows) + ARRAY_SIZE(ignored)];
	const char *near;
	char action[100];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (strcmp(refused[i].name, name) == 0)
			return fault_at(f, -EINVAL, name, -1, refused[i].action,
				"mount option %s: %s", name, refused[i].reason);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		names[n++] = rows[i].name;
	for (size_t i = 0; ignored[i]; i++)
		if (!strchr(ignored[i], '*'))
			names[n++] = ignored[i];
	names[n] = NULL;
	near = fault_nearest(name, names);
	if (near)
		snprintf(action, sizeof action, "did you mean \"%s\"? npufs --help lists all",
			near);
	else
		snprintf(action, sizeof action, "npufs --help lists all options");
	return fault_at(f, -EINVAL, name, -1, action, "unknown mount option \"%.60s\"", name);
}

static int bad_value(const struct option_row *row, const char *value, struct fault *f)
{
	const char *form = types[row->type].form;
	char action[120];

	if (row->type == OPTION_FLAG)
		return fault_at(f, -EINVAL, row->name, -1, "give the name alone",
			"mount option %s takes no value", row->name);
	snprintf(action, sizeof action, "give %s: %s", form, row->range);
	if (!value)
		return fault_at(f, -EINVAL, row->name, -1, action, "mount option %s needs a value",
			row->name);
	return fault_at(f, -EINVAL, row->name, -1, action,
		"mount option %s: \"%.60s\" is not %s %s", row->name, value,
		row->type == OPTION_STRING ? "of length" : "in", row->range);
}

/* `item` is unescaped; its '=' is overwritten. */
static int apply(char *item, struct mount_options *o, struct fault *f)
{
	const struct option_row *row;
	char *value;

	if (item[0] == '\0' || is_ignored(item))
		return 0;
	value = strchr(item, '=');
	if (value)
		*value++ = '\0';
	row = find_row(item);
	if (!row)
		return unknown(item, f);
	if (row->type == OPTION_FLAG ? value != NULL : !value)
		return bad_value(row, value, f);
	if (row->type == OPTION_FLAG)
		store(row, 1, NULL, o);
	else if (!set(row, value, o))
		return bad_value(row, value, f);
	return 0;
}

/* Copy one item without its escapes; returns where the next begins, NULL after the last. */
static const char *next_item(const char *list, char *item)
{
	for (; *list && *list != ','; list++) {
		if (*list == '\\' && (list[1] == ',' || list[1] == '\\'))
			list++;
		*item++ = *list;
	}
	*item = '\0';
	return *list ? list + 1 : NULL;
}

int options_parse(const char *comma_list, struct mount_options *o, struct fault *f)
{
	struct mount_options changed = *o;
	AUTO_FREE char *item = NULL;
	int err;

	if (!comma_list)
		return 0;
	item = malloc(strlen(comma_list) + 1);
	if (!item)
		return fault_set(f, -ENOMEM, "try again", "no memory for the mount options");
	while (comma_list) {
		comma_list = next_item(comma_list, item);
		err = apply(item, &changed, f);
		if (err)
			return err;
	}
	*o = changed;
	return 0;
}

void options_help(struct buf *out)
{
	buf_puts(out, "Mount options (-o NAME=VALUE,...):\n");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct option_row *r = &rows[i];
		char left[40];

		snprintf(left, sizeof left, "%s%s", r->name, types[r->type].sample);
		buf_printf(out, "  %-20s %s\n", left, r->help);
		if (r->type == OPTION_FLAG)
			continue;
		buf_printf(out, "  %-20s (%s%s; default %s)\n", "", r->range,
			r->type == OPTION_STRING ? " bytes" : "", r->def[0] ? r->def : "none");
	}
	buf_puts(out, "Options of mount(8), systemd and libfuse are accepted and ignored:\n ");
	for (size_t i = 0, column = 1; ignored[i]; i++) {
		if (column + strlen(ignored[i]) + 1 > 79) {
			buf_puts(out, "\n ");
			column = 1;
		}
		buf_printf(out, " %s", ignored[i]);
		column += strlen(ignored[i]) + 1;
	}
	buf_puts(out, "\n");
}
