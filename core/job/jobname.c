#include "core/job/jobname.h"

#include <errno.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/base/utf8.h"

static const struct suffix {
	const char *text;
	enum name_class class;
	enum job_row row;
} suffixes[] = {
	{ ".txt", NAME_TEXT, ROW_REQUEST },
	{ ".json", NAME_JSON, ROW_REQUEST },
	{ ".jsonl", NAME_BATCH, ROW_REQUEST },
	{ ".status", NAME_RESULT, ROW_STATUS },
	{ ".out", NAME_RESULT, ROW_OUT },
	{ ".err", NAME_RESULT, ROW_ERR },
	{ ".stream", NAME_RESULT, ROW_STREAM },
};

#define LONGEST_RESULT_SUFFIX (sizeof ".status" - 1)

const char *job_row_suffix(enum job_row row)
{
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (suffixes[i].class == NAME_RESULT && suffixes[i].row == row)
			return suffixes[i].text;
	return "";
}

struct jobname jobname_class(const char *name)
{
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && name[0] != '.' && i < ARRAY_SIZE(suffixes); i++)
		if (strcmp(dot, suffixes[i].text) == 0)
			return (struct jobname){ suffixes[i].class, suffixes[i].row,
				(size_t)(dot - name) };
	return (struct jobname){ NAME_INERT, ROW_REQUEST, 0 };
}

int jobname_parse(const char *name, struct jobname *ret)
{
	size_t len = strlen(name);
	struct jobname n = jobname_class(name);

	if (len > JOBNAME_MAX || n.stem_len + LONGEST_RESULT_SUFFIX > JOBNAME_MAX)
		return -ENAMETOOLONG;
	if (utf8_valid_prefix(name, len) != len)
		return -EILSEQ;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return -EINVAL;
	*ret = n;
	return 0;
}
