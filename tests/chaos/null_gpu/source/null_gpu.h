/* What the parts of the null GPU share. Structures are NVIDIA's own: driver_types.h of the CUDA runtime's wheel. */
#ifndef NULL_GPU_H
#define NULL_GPU_H
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "driver_types.h"

#define NAME "NVIDIA H100 80GB HBM3"
#define ON_HOST 1
#define ON_DEVICE 2

/* memory.c */
size_t null_total(void); /* bytes of the card */
size_t null_used(void);
int null_kind(const void *at); /* 0 (pageable), ON_HOST (page-locked) or ON_DEVICE */
void null_copy(void *to, const void *from, size_t bytes, int asynchronous);

/* launches.c */
void null_launched(const void *function, const char *name);
void null_waited(const char *how);
void null_count(int what); /* one of the names in __init__.py's COUNTS */
enum { LAUNCHES, WAITS, COPIES_IN, COPIES_OUT, PAGEABLE_COPIES, NUMBER_OF_COUNTS };

/* device.c: attributes as an H100 has them; what cudaGetLastError returns next */
cudaError_t null_fail(cudaError_t);
int null_attribute(int which);
#endif
