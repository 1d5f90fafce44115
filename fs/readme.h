/* The mount's own README: made from the tables of rows, with lines to copy. */
#ifndef NPUFS_FS_README_H
#define NPUFS_FS_README_H

#include "fs/fs.h"

void readme_render(struct npufs *fs, struct buf *out);

#endif
