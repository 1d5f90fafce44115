/* The scheme merges, again and again, the adjacent pair of pieces whose joined text is the piece
 * of best score, the leftmost among equals. Looking through all pairs for each merge is
 * quadratic; here every pair that can be merged waits in a heap ordered by (score, place), and a
 * merge makes new pairs with its two neighbours only.
 *
 * A node is a piece of the text, known by the place where it began; merging keeps the left node,
 * so places stay in order. node.merge is what it makes with the next node now. A heap entry is
 * (score, place) and holds while the score of that node's present merge is the entry's: entries
 * of pairs that are gone are skipped when they come up. An old entry that by chance has the score
 * of the node's new merge says the same as the new merge's own entry, and whichever comes second
 * is skipped.
 *
 * A merge takes one entry out, pushes at most two and ends one node of n: 2n entries are room
 * enough. */
#include "core/artifact/tokenizer_llama2c.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

#define NONE       UINT32_MAX /* no node, no slot */
#define NO_TOKEN   (-1)
#define MIN_VOCAB  LLAMA2C_BYTE(256)
#define MIN_SCORE  (-1e10f) /* a merge must score more */
#define CHAR_BYTES 4

struct piece {
	const char *text;
	uint32_t len;
	float score;
};

struct llama2c {
	char *file;
	struct piece *pieces;
	uint32_t vocab;
	uint32_t *slots; /* hash table of tokens; open addressing, at most half full */
	uint32_t mask;
	uint32_t longest;
	int32_t space;   /* the token of " " */
	char bytes[256]; /* what byte tokens print */
};

static const struct piece nothing = { "", 0, 0 };

/* --- lookup ----------------------------------------------------------------------------------- */

/* FNV-1a */
static uint64_t hash(uint64_t h, const struct piece *p)
{
	for (uint32_t i = 0; i < p->len; i++)
		h = (h ^ (unsigned char)p->text[i]) * 0x100000001b3ULL;
	return h;
}

/* Where to begin looking for a followed by b. */
static uint32_t first_slot(const struct llama2c *l, const struct piece *a, const struct piece *b)
{
	return (uint32_t)(hash(hash(0xcbf29ce484222325ULL, a), b) >> 32) & l->mask;
}

/* The token whose text is a followed by b, or NO_TOKEN. */
static int32_t find(const struct llama2c *l, const struct piece *a, const struct piece *b)
{
	uint32_t i = first_slot(l, a, b);

	for (; l->slots[i] != NONE; i = (i + 1) & l->mask) {
		const struct piece *p = &l->pieces[l->slots[i]];

		if (p->len == a->len + b->len && memcmp(p->text, a->text, a->len) == 0 &&
			memcmp(p->text + a->len, b->text, b->len) == 0)
			return (int32_t)l->slots[i];
	}
	return NO_TOKEN;
}

static int32_t find_text(const struct llama2c *l, const char *text, uint32_t len)
{
	const struct piece whole = { text, len, 0 };

	return find(l, &whole, &nothing);
}

/* Of two tokens with one text the first is found. */
static int index_pieces(struct llama2c *l)
{
	uint32_t size = 2;

	while (size < 2 * l->vocab)
		size *= 2;
	l->slots = malloc(size * sizeof *l->slots);
	if (!l->slots)
		return -ENOMEM;
	memset(l->slots, 0xff, size * sizeof *l->slots);
	l->mask = size - 1;
	for (uint32_t t = 0; t < l->vocab; t++) {
		const struct piece *p = &l->pieces[t];
		uint32_t i = first_slot(l, p, &nothing);

		if (find(l, p, &nothing) != NO_TOKEN)
			continue;
		while (l->slots[i] != NONE)
			i = (i + 1) & l->mask;
		l->slots[i] = t;
	}
	return 0;
}

/* --- the file --------------------------------------------------------------------------------- */

static uint32_t read_u32(const char *at)
{
	const unsigned char *b = (const unsigned char *)at;

	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static float read_float(const char *at)
{
	uint32_t bits = read_u32(at);
	float v;

	memcpy(&v, &bits, sizeof v);
	return v;
}

static int broken(struct fault *f, size_t offset, const char *what)
{
	return fault_at(f, -EINVAL, "tokenizer", -1, "replace the tokenizer file",
		"the tokenizer file is broken at byte %zu: %s", offset, what);
}

static int read_pieces(struct llama2c *l, size_t len, struct fault *f)
{
	size_t at = 4;
	uint32_t longest;

	if (len < 4)
		return broken(f, 0, "it is too short");
	longest = read_u32(l->file);
	for (uint32_t t = 0; t < l->vocab; t++) {
		struct piece *p = &l->pieces[t];

		if (len - at < 8)
			return broken(f, at, "it has fewer tokens than the manifest says");
		*p = (struct piece){ l->file + at + 8, read_u32(l->file + at + 4),
			read_float(l->file + at) };
		if (!isfinite(p->score))
			return broken(f, at, "a score is not finite");
		if (p->len == 0 || p->len > longest)
			return broken(f, at + 4, "a length is not within 1 and the greatest");
		at += 8;
		if (len - at < p->len)
			return broken(f, at, "it ends within a token");
		if (memchr(p->text, '\0', p->len))
			return broken(f, at, "a token has a NUL byte");
		at += p->len;
		if (p->len > l->longest)
			l->longest = p->len;
	}
	return at == len ? 0 : broken(f, at, "it has more bytes than the manifest's tokens need");
}

/* Any text can be encoded and printed again only if each byte has its token where the scheme
 * looks for it. */
static int check_bytes(const struct llama2c *l, struct fault *f)
{
	for (int b = 0; b < 256; b++) {
		const struct piece *p = &l->pieces[LLAMA2C_BYTE(b)];
		char want[8];

		snprintf(want, sizeof want, "<0x%02X>", (unsigned)b);
		if (p->len != 6 || memcmp(p->text, want, 6) != 0)
			return broken(f, (size_t)(p->text - l->file),
				"tokens 3 to 258 are not the bytes");
	}
	return 0;
}

static int load(struct llama2c *l, const void *file, size_t len, struct fault *f)
{
	int err;

	l->file = malloc(len ? len : 1);
	l->pieces = calloc(l->vocab, sizeof *l->pieces);
	if (!l->file || !l->pieces)
		return fault_set(f, -ENOMEM, "try again", "no memory for the tokenizer");
	if (len)
		memcpy(l->file, file, len);
	err = read_pieces(l, len, f);
	if (!err)
		err = check_bytes(l, f);
	if (err)
		return err;
	if (index_pieces(l))
		return fault_set(f, -ENOMEM, "try again", "no memory for the tokenizer");
	for (int b = 0; b < 256; b++)
		l->bytes[b] = (char)b;
	l->space = find_text(l, " ", 1);
	if (l->space == NO_TOKEN)
		l->space = LLAMA2C_BYTE(' ');
	return 0;
}

int llama2c_new(const void *file, size_t len, uint32_t vocab, struct llama2c **ret, struct fault *f)
{
	struct llama2c *l;
	int err;

	if (vocab < MIN_VOCAB || vocab > INT32_MAX / 2)
		return fault_at(f, -EINVAL, "vocab_size", -1, "give the size of the tokenizer file",
			"vocab_size %u is less than the %d controls and bytes", vocab, MIN_VOCAB);
	l = calloc(1, sizeof *l);
	if (!l)
		return fault_set(f, -ENOMEM, "try again", "no memory for the tokenizer");
	l->vocab = vocab;
	err = load(l, file, len, f);
	if (err) {
		llama2c_free(l);
		return err;
	}
	*ret = l;
	return 0;
}

void llama2c_free(struct llama2c *l)
{
	if (!l)
		return;
	free(l->slots);
	free(l->pieces);
	free(l->file);
	free(l);
}

size_t llama2c_longest(const struct llama2c *l)
{
	return l->longest;
}

/* --- merging ---------------------------------------------------------------------------------- */

struct node {
	int32_t token; /* NO_TOKEN: merged into one before it */
	int32_t merge; /* with the next; NO_TOKEN: none */
	uint32_t prev, next;
};

struct entry {
	float score;
	uint32_t place;
};

struct merger {
	const struct llama2c *vocab;
	struct node *nodes;
	struct entry *heap;
	size_t n_heap;
};

static bool goes_before(struct entry a, struct entry b)
{
	return a.score > b.score || (a.score == b.score && a.place < b.place);
}

static void heap_push(struct merger *m, struct entry e)
{
	size_t i = m->n_heap++;

	for (; i > 0 && goes_before(e, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
		m->heap[i] = m->heap[(i - 1) / 2];
	m->heap[i] = e;
}

static struct entry heap_pop(struct merger *m)
{
	struct entry top = m->heap[0], last = m->heap[--m->n_heap];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < m->n_heap) {
		if (child + 1 < m->n_heap && goes_before(m->heap[child + 1], m->heap[child]))
			child++;
		if (!goes_before(m->heap[child], last))
			break;
		m->heap[i] = m->heap[child];
		i = child;
	}
	m->heap[i] = last;
	return top;
}

/* Find out what the node makes with its next, and queue it. */
static void consider(struct merger *m, uint32_t place)
{
	const struct piece *pieces = m->vocab->pieces;
	struct node *n = &m->nodes[place];
	const struct piece *a = &pieces[n->token], *b;

	n->merge = NO_TOKEN;
	if (n->next == NONE)
		return;
	b = &pieces[m->nodes[n->next].token];
	if (a->len + b->len > m->vocab->longest)
		return;
	n->merge = find(m->vocab, a, b);
	if (n->merge != NO_TOKEN && pieces[n->merge].score > MIN_SCORE)
		heap_push(m, (struct entry){ pieces[n->merge].score, place });
}

static void merge(struct merger *m, uint32_t place)
{
	struct node *n = &m->nodes[place], *gone = &m->nodes[n->next];

	n->token = n->merge;
	n->next = gone->next;
	gone->token = NO_TOKEN;
	gone->merge = NO_TOKEN;
	if (n->next != NONE)
		m->nodes[n->next].prev = place;
	consider(m, place);
	if (n->prev != NONE)
		consider(m, n->prev);
}

static void merge_all(struct merger *m, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		consider(m, i);
	while (m->n_heap) {
		struct entry e = heap_pop(m);
		int32_t made = m->nodes[e.place].merge;

		if (made != NO_TOKEN && m->vocab->pieces[made].score == e.score)
			merge(m, e.place);
	}
}

/* --- encode, decode --------------------------------------------------------------------------- */

/* A first byte of any kind and the continuation bytes after it, four bytes at most, as the scheme
 * cuts text without asking whether it is well-formed. */
static uint32_t char_len(const char *text, size_t len)
{
	uint32_t n = 1;

	while (n < len && n < CHAR_BYTES && (text[n] & 0xc0) == 0x80)
		n++;
	return n;
}

static size_t first_tokens(const struct llama2c *l, const char *text, size_t len, int32_t *out)
{
	size_t n = 0;

	out[n++] = l->space;
	while (len) {
		uint32_t k = char_len(text, len);
		int32_t whole = find_text(l, text, k);

		if (whole != NO_TOKEN)
			out[n++] = whole;
		else
			for (uint32_t i = 0; i < k; i++)
				out[n++] = LLAMA2C_BYTE((unsigned char)text[i]);
		text += k;
		len -= k;
	}
	return n;
}

int llama2c_encode(const struct llama2c *l, const char *text, size_t len, int32_t *out,
	size_t *ret_n)
{
	AUTO_FREE struct node *nodes = NULL;
	AUTO_FREE struct entry *heap = NULL;
	struct merger m;
	size_t n, kept = 0;

	if (len == 0) {
		*ret_n = 0;
		return 0;
	}
	if (len >= NONE - 1)
		return -ENOMEM;
	n = first_tokens(l, text, len, out);
	nodes = malloc(n * sizeof *nodes);
	heap = malloc(2 * n * sizeof *heap);
	if (!nodes || !heap)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		nodes[i] = (struct node){ out[i], NO_TOKEN, i ? (uint32_t)i - 1 : NONE,
			i + 1 < n ? (uint32_t)i + 1 : NONE };
	m = (struct merger){ l, nodes, heap, 0 };
	merge_all(&m, (uint32_t)n);
	for (size_t i = 0; i < n; i++)
		if (nodes[i].token != NO_TOKEN)
			out[kept++] = nodes[i].token;
	*ret_n = kept;
	return 0;
}

const char *llama2c_piece(const struct llama2c *l, int32_t prev, int32_t token, size_t *ret_len)
{
	const struct piece *p = &l->pieces[token];
	bool drop_space = prev == LLAMA2C_BOS && p->text[0] == ' ';

	*ret_len = 0;
	if (token == LLAMA2C_BOS || token == LLAMA2C_EOS)
		return "";
	if (token >= LLAMA2C_BYTE(0) && token < LLAMA2C_BYTE(256)) {
		*ret_len = 1;
		return &l->bytes[token - LLAMA2C_BYTE(0)];
	}
	*ret_len = p->len - drop_space;
	return p->text + drop_space;
}
