/* Any bytes as the line of a node of control/: a first line may name the command; all of it is tried as
 * the gate's form too. What is taken has one meaning: it can be written again as the same bytes, none of
 * which moves a terminal. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/control/privileged_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

static void check_printable(const char *text)
{
	for (; *text; text++)
		CHECK((unsigned char)*text >= ' ' && *text != 0x7f);
}

/* What the gate may take fits its own row's name, and only that. */
static void check_words(const struct privileged_row *row, const char *command,
	const struct privileged_words *w)
{
	CHECK(w->row == row || !w->row || strlen(w->row->name) > strlen(row->name));
	CHECK(w->words >= command && w->words + strlen(w->words) == command + strlen(command));
	if (!w->fits)
		return;
	CHECK(w->row && w->args_len <= strlen(w->words));
	CHECK(!w->forced || w->row->needs_idle);
	CHECK((w->args_len == 0) == (w->row->args[0] == '\0'));
	check_printable(command);
}

static void try_line(const struct privileged_row *row, const char *line)
{
	AUTO_BUF struct buf again = BUF_INIT;
	size_t size = strlen(line) + 64;
	AUTO_FREE char *command = malloc(size);
	struct privileged_words w;
	const char *reason;

	CHECK(command);
	if (privileged_words_of_line(row, line, command, size, &reason))
		return;
	CHECK(reason > line && reason <= line + strlen(line));
	privileged_words_get(command, &w);
	check_words(row, command, &w);
	if (!w.fits || !privileged_words_are_reason(reason))
		return;
	CHECK(w.row == row);
	check_printable(line);
	privileged_words_put_line(&w, reason, &again);
	CHECK(strcmp(buf_text(&again), line) == 0);
}

static void try_command(const char *text)
{
	struct privileged_words w;

	privileged_words_get(text, &w);
	if (w.row)
		check_words(w.row, text, &w);
	else
		CHECK(!w.fits && w.words == text);
}

/* The command that the text begins with the line of, and where its own line begins. */
static const struct privileged_row *find_row(char *text, char **ret_line)
{
	char *end = strchr(text, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	*ret_line = end + 1;
	for (int c = 0; c < PRIVILEGED_COUNT; c++) {
		const struct privileged_row *row = privileged_row((enum privileged_command)c);

		if (strcmp(text, row->name) == 0)
			return row;
	}
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A block of its own of exactly that size: a byte too far is seen. */
	char *text = calloc(1, size + 1), *line;
	const struct privileged_row *row;

	CHECK(text);
	if (size)
		memcpy(text, data, size);
	try_command(text);
	row = find_row(text, &line);
	if (row)
		try_line(row, line);
	free(text);
	return 0;
}
