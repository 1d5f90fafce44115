/* npufs-admin jobs on the spool that a folder left. */
#include "tests/jobdir_rig.h"

#include "core/admin/admin.h"

static char text[4096];

static int admin(const char *a, const char *b, const char *c)
{
	char *argv[] = { "npufs-admin", "jobs", (char *)a, store, (char *)b, (char *)c, NULL };
	FILE *out = fmemopen(text, sizeof text, "w");
	int rc = admin_main(b ? 6 : 4, argv, out, out);

	fclose(out);
	return rc;
}

/* The number that the list has for a path. */
static void file_of(const char *path, char ret[32])
{
	const char *at = strstr(text, path);

	assert_non_null(at);
	while (at > text && at[-1] != '\n')
		at--;
	snprintf(ret, 32, "%llu", strtoull(at, NULL, 10));
}

static void jobs__list_and_get__as_the_folder_left_them(void **state)
{
	struct jobdir_attr a;
	char id[32];

	(void)state;
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "sub", 0755, &a), 0);
	snprintf(id, sizeof id, "%llu", (unsigned long long)a.ref.id);
	jobdir_forget(d, a.ref.id, 1);
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	assert_int_equal(echo(&bob, "note", "hello"), 0);
	assert_int_equal(echo(&bob,
				 "\xc2\x9b"
				 "31mred\xe2\x80\xa8",
				 "hi"),
		0); /* a terminal's */
	assert_int_equal(jobdir_rename(d, &alice, ROOT, "a.json", a.ref.id, "b.json", false,
				 &synced),
		0);

	assert_int_equal(admin("list", NULL, NULL), ADMIN_OK); /* while it is in use */
	assert_non_null(strstr(text, " - folder 1000 0 sub\n"));
	assert_non_null(strstr(text, " done 1000 35 sub/b.json\n"));
	assert_non_null(strstr(text, " - file 1001 5 note\n"));
	assert_non_null(strstr(text, " - file 1001 2 ?31mred?\n"));
	file_of("sub/b.json", id);
	assert_int_equal(admin("get", id, "out"), ADMIN_OK);
	assert_string_equal(text, "de\n");
	assert_int_equal(admin("get", id, "stream"), ADMIN_OK);
	assert_string_equal(text, "de\n");
	assert_int_equal(admin("get", id, "request"), ADMIN_OK);
	assert_string_equal(text, DE);
	assert_int_equal(admin("get", id, "err"), ADMIN_FAILED);
	assert_int_equal(admin("get", "1x", "out"), ADMIN_FAILED);
	assert_int_equal(admin("get", "4711", "request"), ADMIN_FAILED);
	assert_non_null(strstr(text, "jobs list STORE"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(jobs__list_and_get__as_the_folder_left_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
