/* Device memory is address space of this process, of which pages that nobody writes take nothing: so a card of
   80 GB fits a machine of 24. It runs out where the card would. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "null_gpu.h"

#define SMALL (1u << 20)
typedef struct {
    uintptr_t begin;
    size_t bytes;
    int kind, is_counted;
} Range;

static Range *ranges;
static int number, room;
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

size_t null_total(void) {
    const char *given = getenv("NULL_GPU_BYTES");
    return given ? strtoull(given, NULL, 10) : 85520809984ull;
}

size_t null_used(void) { return used; }

/* Whether the card writes what is copied to it, whatever the size. */
static int is_real(void) {
    static int known = -1;
    if (known < 0) known = getenv("NULL_GPU_ARITHMETIC") != NULL;
    return known;
}

static void add(void *begin, size_t bytes, int kind, int is_counted) {
    pthread_mutex_lock(&lock);
    if (number == room) ranges = realloc(ranges, (room = room ? 2 * room : 256) * sizeof *ranges);
    ranges[number++] = (Range){(uintptr_t)begin, bytes, kind, is_counted};
    if (is_counted) used += bytes;
    pthread_mutex_unlock(&lock);
}

static size_t drop(const void *begin) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < number && !bytes; i++)
        if (ranges[i].begin == (uintptr_t)begin) {
            bytes = ranges[i].bytes;
            if (ranges[i].is_counted) used -= bytes;
            ranges[i] = ranges[--number];
        }
    pthread_mutex_unlock(&lock);
    return bytes;
}

int null_kind(const void *at) {
    int kind = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < number && !kind; i++)
        if ((uintptr_t)at - ranges[i].begin < ranges[i].bytes) kind = ranges[i].kind;
    pthread_mutex_unlock(&lock);
    return kind;
}

/* What is large is not written to the card, unless it computes: its pages would be taken. */
void null_copy(void *to, const void *from, size_t bytes, int asynchronous) {
    int there = null_kind(to), here = null_kind(from);
    if (there == ON_DEVICE && here != ON_DEVICE) null_count(COPIES_IN);
    if (here == ON_DEVICE && there != ON_DEVICE) null_count(COPIES_OUT);
    if (asynchronous && bytes > 64 && (there == ON_DEVICE) + (here == ON_DEVICE) == 1 && (!there || !here))
        null_count(PAGEABLE_COPIES);
    if (there != ON_DEVICE || bytes <= SMALL || is_real()) memmove(to, from, bytes);
}

static void *space(size_t bytes) {
    void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? NULL : found;
}

cudaError_t cudaMalloc(void **found, size_t bytes) {
    if (used + bytes > null_total() || !(*found = space(bytes ? bytes : 1)))
        return null_fail(cudaErrorMemoryAllocation);
    add(*found, bytes, ON_DEVICE, 1);
    return cudaSuccess;
}

cudaError_t cudaFree(void *begin) {
    size_t bytes = begin ? drop(begin) : 0;
    if (bytes) munmap(begin, bytes);
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **found, size_t bytes, cudaStream_t s) { return cudaMalloc(found, bytes); }
cudaError_t cudaFreeAsync(void *begin, cudaStream_t s) { return cudaFree(begin); }

cudaError_t cudaHostAlloc(void **found, size_t bytes, unsigned flags) {
    *found = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    add(*found, bytes, ON_HOST, 0);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *begin) {
    drop(begin);
    free(begin);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *begin, size_t bytes, unsigned flags) {
    add(begin, bytes, ON_HOST, 0);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *begin) {
    drop(begin);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *total = null_total();
    *free_bytes = *total - used;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind k) {
    null_copy(to, from, bytes, 0);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind k, cudaStream_t s) {
    null_copy(to, from, bytes, 1);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind k, cudaStream_t s) {
    for (size_t i = 0; i < height; i++)
        null_copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width, 1);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    if (bytes <= SMALL || is_real()) memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s) {
    null_launched((const void *)cudaMemsetAsync, "memset");
    return cudaMemset(to, value, bytes);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *at) {
    int kind = null_kind(at);
    memset(found, 0, sizeof *found);
    found->type = kind;
    found->devicePointer = kind ? (void *)at : NULL;
    found->hostPointer = kind == ON_HOST ? (void *)at : NULL;
    found->device = kind ? 0 : -2;
    return cudaSuccess;
}

/* The driver's virtual memory, of which torch makes segments that grow. */
int cuMemGetAllocationGranularity(size_t *found, const void *properties, int option) { return *found = 2u << 20, 0; }

int cuMemAddressReserve(uint64_t *found, size_t bytes, size_t alignment, uint64_t at, unsigned long long flags) {
    void *begin = space(bytes);
    if (!begin) return 2;
    add(begin, bytes, ON_DEVICE, 0);
    return *found = (uint64_t)begin, 0;
}

int cuMemAddressFree(uint64_t begin, size_t bytes) {
    drop((void *)begin);
    return munmap((void *)begin, bytes), 0;
}

int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, unsigned long long flags) {
    pthread_mutex_lock(&lock);
    int fits = used + bytes <= null_total();
    if (fits) used += bytes;
    pthread_mutex_unlock(&lock);
    return *handle = bytes, fits ? 0 : 2; /* CUDA_ERROR_OUT_OF_MEMORY */
}

int cuMemRelease(uint64_t handle) {
    pthread_mutex_lock(&lock);
    used -= handle;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) { return 0; }
int cuMemSetAccess(uint64_t at, size_t bytes, const void *how, size_t count) { return 0; }
int cuMemUnmap(uint64_t at, size_t bytes) { return madvise((void *)at, bytes, MADV_DONTNEED), 0; }

int cuPointerGetAttribute(void *found, int which, uint64_t at) {
    if (which == 2) *(uint32_t *)found = null_kind((void *)at);          /* memory type */
    else if (which == 3 || which == 4) *(uint64_t *)found = at;          /* device pointer, host pointer */
    else if (which == 9) *(int *)found = 0;                              /* ordinal of the device */
    else return 1;
    return 0;
}

int cuPointerGetAttributes(unsigned count, const int *which, void **found, uint64_t at) {
    for (unsigned i = 0; i < count; i++) cuPointerGetAttribute(found[i], which[i], at);
    return 0;
}
