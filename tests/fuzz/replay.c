/* What the fuzz targets have met so far, once each, without a fuzzer: their seeds and kept crashes, the
 * folders and files of the command line. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned replayed;

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "r");
	uint8_t *bytes;
	struct stat st;

	if (!file || fstat(fileno(file), &st) || !(bytes = malloc((size_t)st.st_size + 1))) {
		perror(path);
		exit(1);
	}
	LLVMFuzzerTestOneInput(bytes, fread(bytes, 1, (size_t)st.st_size, file));
	replayed++;
	free(bytes);
	fclose(file);
}

static void replay_folder(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *d;
	char name[4096];

	if (!dir) {
		replay_file(path);
		return;
	}
	while ((d = readdir(dir))) {
		snprintf(name, sizeof name, "%s/%s", path, d->d_name);
		if (d->d_name[0] != '.')
			replay_file(name);
	}
	closedir(dir);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		replay_folder(argv[i]);
	printf("%u inputs, no fault\n", replayed);
	return replayed ? 0 : 1;
}
