#include "core/job/tree.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define ROOT_ID 7

static const struct owner file_owner = { 1, 1, 0600, false };
static const struct owner dir_owner = { 1, 1, 0755, true };

static int up(void **state)
{
	*state = tree_new(ROOT_ID, &dir_owner);
	return *state ? 0 : -1;
}

static int down(void **state)
{
	tree_free(*state);
	return 0;
}

static struct tree_node *add(struct tree *t, struct tree_node *dir, const char *name,
	const struct owner *o)
{
	static uint64_t id = 1000;
	struct tree_node *n = tree_node_new(t, id++, o);

	assert_int_equal(tree_link(t, dir, n, name), 0);
	return n;
}

static void find__requests__by_stem_and_by_name(void **state)
{
	struct tree_node *root = tree_root(*state);
	struct tree_node *a = add(*state, root, "a.txt", &file_owner),
			 *b = add(*state, root, "b", &file_owner);
	struct tree_node *inert = add(*state, root, "a", &file_owner);

	assert_ptr_equal(tree_find(root, "a.txt"), a);
	assert_null(tree_find(root, "a.json"));
	assert_null(tree_find(root, "a.out"));
	assert_null(tree_find(root, "a.tx"));
	assert_ptr_equal(tree_find(root, "a"), inert);
	assert_ptr_equal(tree_find(root, "b"), b);
	assert_ptr_equal(tree_find_stem(root, "a.out", 1), a);
	assert_null(tree_find_stem(root, "a.out", 2));
	assert_null(tree_find_stem(root, "b", 1));
	assert_int_equal(tree_count(*state), 3);
	assert_int_equal(tree_dir_count(root), 3);
}

static void id__of_a_removed_node__never_used_again(void **state)
{
	struct tree_node *root = tree_root(*state);
	uint64_t last = root->id;

	assert_int_equal(root->id, ROOT_ID);
	for (int i = 0; i < 100; i++) {
		struct tree_node *n = add(*state, root, "x", &file_owner);

		assert_true(n->id > last);
		last = n->id;
		assert_ptr_equal(tree_by_id(*state, last), n);
		tree_unlink(*state, n);
		assert_null(tree_by_id(*state, last));
	}
	assert_int_equal(tree_count(*state), 0);
}

static void unlink__open_file_or_known_folder__found_until_let_go(void **state)
{
	struct tree_node *n = add(*state, tree_root(*state), "x.txt", &file_owner);
	uint64_t id = n->id;

	n->lookups = 1;
	n->opens = 1;
	n->writers = 1;
	tree_unlink(*state, n);
	assert_ptr_equal(tree_by_id(*state, id), n);
	assert_null(n->parent);
	assert_null(tree_find(tree_root(*state), "x.txt"));
	n->opens = n->writers = 0;
	tree_release(*state, n);
	assert_null(tree_by_id(*state, id)); /* though the kernel knows it */
	n = add(*state, tree_root(*state), "d", &dir_owner);
	id = n->id;
	n->lookups = 1;
	tree_unlink(*state, n);
	assert_ptr_equal(tree_by_id(*state, id), n); /* somebody may stand in it */
	n->lookups = 0;
	tree_release(*state, n);
	assert_null(tree_by_id(*state, id));
}

static void find__twenty_thousand__all_there(void **state)
{
	struct tree_node *root = tree_root(*state);
	char name[32];

	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof name, i % 2 ? "%d.txt" : "%d", i);
		add(*state, root, name, &file_owner);
	}
	for (int i = 0; i < 20000; i += 3) {
		snprintf(name, sizeof name, i % 2 ? "%d.txt" : "%d", i);
		tree_unlink(*state, tree_find(root, name));
	}
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof name, i % 2 ? "%d.txt" : "%d", i);
		if (i % 3 == 0)
			assert_null(tree_find(root, name));
		else
			assert_non_null(tree_find(root, name));
	}
	assert_int_equal(tree_dir_count(root), 20000 - 6667);
}

/* rm -rf while listing: everything that was there at the start and is not removed is seen once. */
static void entry_from__entries_removed_while_listing__each_seen_once(void **state)
{
	struct tree_node *root = tree_root(*state), *n;
	unsigned seen[1000] = { 0 };
	uint64_t from = 0;
	char name[16];

	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "%d", i);
		add(*state, root, name, &file_owner);
	}
	for (int step = 0; (n = tree_entry_from(root, from)); step++) {
		struct tree_node *other;
		int i;

		assert_int_equal(sscanf(n->name, "%d", &i), 1);
		if (i < 1000)
			seen[i]++;
		from = n->entry + 1;
		tree_unlink(*state, n);
		snprintf(name, sizeof name, "%d", 999 - step / 4); /* one further on goes, too */
		other = step % 4 == 0 ? tree_find(root, name) : NULL;
		if (other) {
			seen[999 - step / 4]++;
			tree_unlink(*state, other);
		}
		if (step < 50) { /* and others come */
			snprintf(name, sizeof name, "%d", 1000 + step);
			add(*state, root, name, &file_owner);
		}
	}
	for (int i = 0; i < 1000; i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(tree_dir_count(root), 0);
	assert_null(tree_entry_from(root, 0));
}

static void entry_from__in_order_of_linking(void **state)
{
	struct tree_node *root = tree_root(*state), *n;
	static const char *const names[] = { "z", "a.txt", "m", "b.json" };
	uint64_t from = 0;

	for (int i = 0; i < 4; i++)
		add(*state, root, names[i], &file_owner);
	for (int i = 0; i < 4; i++) {
		n = tree_entry_from(root, from);
		assert_string_equal(n->name, names[i]);
		from = n->entry + 1;
	}
	assert_null(tree_entry_from(root, from));
}

/* Else a listing that has passed the removed ones would leave the new one out. */
static void entry__after_the_last_were_removed__still_larger(void **state)
{
	struct tree_node *root = tree_root(*state), *n;
	uint64_t last = 0;
	char name[16];

	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof name, "%d", i);
		last = add(*state, root, name, &file_owner)->entry;
	}
	for (int i = 63; i > 4; i--) {
		snprintf(name, sizeof name, "%d", i);
		tree_unlink(*state, tree_find(root, name));
	}
	n = add(*state, root, "new", &file_owner);
	assert_true(n->entry > last);
	assert_ptr_equal(tree_entry_from(root, last + 1), n);
}

static void move__other_name_and_folder__only_there(void **state)
{
	struct tree_node *root = tree_root(*state), *d = add(*state, root, "d", &dir_owner);
	struct tree_node *x = add(*state, root, "x", &file_owner);
	uint64_t id = x->id, entry = x->entry;

	tree_move(x, root, tree_reserve(root, "x.txt"));
	assert_null(tree_find(root, "x"));
	assert_ptr_equal(tree_find(root, "x.txt"), x);
	assert_int_equal(x->what.class, NAME_TEXT);
	assert_true(x->entry > entry);
	tree_move(x, d, tree_reserve(d, "y"));
	assert_ptr_equal(tree_find(d, "y"), x);
	assert_ptr_equal(x->parent, d);
	assert_int_equal(tree_dir_count(root), 1);
	assert_int_equal(tree_dir_count(d), 1);
	assert_ptr_equal(tree_by_id(*state, id), x);
	assert_int_equal(tree_count(*state), 2);
}

static void shape__nested_folders__depth_height_subdirs(void **state)
{
	struct tree_node *root = tree_root(*state), *a = add(*state, root, "a", &dir_owner);
	struct tree_node *b = add(*state, a, "b", &dir_owner), *c = add(*state, b, "c", &dir_owner);
	struct tree_node *d = add(*state, a, "d", &dir_owner);

	add(*state, c, "f", &file_owner);
	assert_int_equal(tree_depth(root), 0);
	assert_int_equal(tree_depth(c), 3);
	assert_int_equal(tree_height(root), 3);
	assert_int_equal(tree_height(a), 2);
	assert_int_equal(tree_height(c), 0);
	assert_int_equal(tree_dir_subdirs(root), 1);
	assert_int_equal(tree_dir_subdirs(a), 2);
	assert_true(tree_is_under(c, a));
	assert_true(tree_is_under(a, a));
	assert_false(tree_is_under(d, b));
	tree_move(c, d, tree_reserve(d, "c2"));
	assert_int_equal(tree_dir_subdirs(b), 0);
	assert_int_equal(tree_dir_subdirs(d), 1);
	assert_true(tree_is_under(c, d));
	tree_unlink(*state, b);
	assert_int_equal(tree_dir_subdirs(a), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(find__requests__by_stem_and_by_name, up, down),
		cmocka_unit_test_setup_teardown(id__of_a_removed_node__never_used_again, up, down),
		cmocka_unit_test_setup_teardown(
			unlink__open_file_or_known_folder__found_until_let_go, up, down),
		cmocka_unit_test_setup_teardown(find__twenty_thousand__all_there, up, down),
		cmocka_unit_test_setup_teardown(
			entry_from__entries_removed_while_listing__each_seen_once, up, down),
		cmocka_unit_test_setup_teardown(entry_from__in_order_of_linking, up, down),
		cmocka_unit_test_setup_teardown(entry__after_the_last_were_removed__still_larger,
			up, down),
		cmocka_unit_test_setup_teardown(move__other_name_and_folder__only_there, up, down),
		cmocka_unit_test_setup_teardown(shape__nested_folders__depth_height_subdirs, up,
			down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
