#include "core/control/privileged_words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

#define NOW "now" /* where there are no arguments */

/* What follows `name` in `command`, or NULL when it is not this command. */
static const char *after_name(const char *command, const char *name)
{
	size_t len = strlen(name);

	if (strncmp(command, name, len) != 0)
		return NULL;
	if (command[len] == ' ')
		return command + len + 1;
	return command[len] ? NULL : command + len;
}

/* Words with one blank between; SIZE_MAX where blanks are elsewhere. */
static size_t count_words(const char *text)
{
	size_t n = text[0] != '\0';

	for (const char *blank = text - 1; n && (blank = strchr(blank + 1, ' ')); n++)
		if (blank == text || blank[1] == ' ' || !blank[1])
			return SIZE_MAX;
	return n;
}

static bool ends_in_force(const char *words, size_t n)
{
	const char *last = strrchr(words, ' ');

	return n > 0 && strcmp(last ? last + 1 : words, PRIVILEGED_FORCE) == 0;
}

static bool is_printable(const char *text)
{
	size_t size = strlen(text) + 1;
	AUTO_FREE char *clean = malloc(size);

	if (!clean)
		return false;
	fault_clean(clean, size, text);
	return strcmp(clean, text) == 0;
}

/* Split the words into arguments and force. There is always a byte before them: a blank after a name
 * that nothing follows does not fit. */
static void read_words(struct privileged_words *w)
{
	size_t want = count_words(w->row->args), n = count_words(w->words);

	w->args_len = strlen(w->words);
	if (w->row->needs_idle && n == want + 1 && ends_in_force(w->words, n)) {
		w->forced = true;
		w->args_len -= strlen(PRIVILEGED_FORCE) + (want > 0);
		n--;
	}
	w->fits = n == want && (w->words[0] || w->words[-1] != ' ') && is_printable(w->words);
}

void privileged_words_get(const char *text, struct privileged_words *ret)
{
	*ret = (struct privileged_words){ .words = text };
	for (int i = 0; !ret->row && i < PRIVILEGED_COUNT; i++) {
		const struct privileged_row *row = privileged_row((enum privileged_command)i);
		const char *words = after_name(text, row->name);

		if (words) {
			ret->row = row;
			ret->words = words;
		}
	}
	if (ret->row)
		read_words(ret);
}

int privileged_words_of_line(const struct privileged_row *row, const char *line, char *ret_command,
	size_t size, const char **ret_reason)
{
	const char *end = strstr(line, ": "), *words = line;

	if (!end)
		return -EINVAL;
	if (!row->args[0]) {
		if (strncmp(line, NOW, strlen(NOW)) != 0)
			return -EINVAL;
		words += strlen(NOW);
		if (words != end && *words++ != ' ')
			return -EINVAL;
	}
	if (words == end && (row->args[0] || words[-1] == ' '))
		return -EINVAL;
	if ((size_t)snprintf(ret_command, size, "%s%s%.*s", row->name, words == end ? "" : " ",
		    (int)(end - words), words) >= size)
		return -EINVAL;
	*ret_reason = end + strlen(": ");
	return 0;
}

void privileged_words_put_line(const struct privileged_words *w, const char *reason,
	struct buf *out)
{
	if (w->row->args[0])
		buf_put(out, w->words, w->args_len);
	else
		buf_puts(out, NOW);
	buf_printf(out, "%s: %s", w->forced ? " " PRIVILEGED_FORCE : "", reason);
}

bool privileged_words_are_reason(const char *text)
{
	return text && strlen(text) <= PRIVILEGED_REASON_MAX && text[strspn(text, " ")] &&
		is_printable(text);
}
