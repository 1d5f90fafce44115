/* A privileged command as it is written. Two forms, of printable UTF-8, one blank between words:
 *
 *   the gate's   NAME [ARGUMENTS] [force]
 *   a node's     ARGUMENTS [force]: REASON      now [force]: REASON where there are no arguments
 *
 * How many arguments there are and whether "force" may follow is the row's to say. Nothing is decided
 * here but whether it is the form; what was taken can be written again as the same bytes. */
#ifndef NPUFS_CORE_CONTROL_PRIVILEGED_WORDS_H
#define NPUFS_CORE_CONTROL_PRIVILEGED_WORDS_H

#include "core/control/privileged.h"

#define PRIVILEGED_FORCE "force"

/* Borrowed from what was read. */
struct privileged_words {
	const struct privileged_row *row; /* NULL: there is no such command */
	const char *words;                /* after its name; the whole text where row is NULL */
	size_t args_len;                  /* of the words: the rest is force */
	bool forced;
	bool fits; /* the words are what the row names */
};

/* The gate's form. */
void privileged_words_get(const char *text, struct privileged_words *ret);

/* A node's form to the gate's, and its reason, which is not looked at. The first colon that a blank
 * follows ends the arguments, so that they may have colons of their own. -EINVAL: it is not the form,
 * or too long for `size` bytes. */
int privileged_words_of_line(const struct privileged_row *row, const char *line, char *ret_command,
	size_t size, const char **ret_reason);
/* And back: `w` fits. */
void privileged_words_put_line(const struct privileged_words *w, const char *reason,
	struct buf *out);

/* 1 to PRIVILEGED_REASON_MAX bytes, not all blank, printable; NULL is none. */
bool privileged_words_are_reason(const char *text);

#endif
