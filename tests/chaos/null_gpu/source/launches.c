/* Kernels are counted, not run. Streams and events are there; whatever is waited for is over, unless a kernel takes
   time (NULL_GPU_KERNEL_MICROSECONDS): then all streams are one, and who waits waits for it. */
#include "null_gpu.h"

#define SLOTS (1u << 19) /* torch has some 60,000 kernels */
typedef struct {
    const void *function;
    const char *name;
    uint64_t launches;
} Kernel;

static Kernel kernels[SLOTS];
static uint64_t counts[NUMBER_OF_COUNTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t done_at; /* nanoseconds of the monotonic clock when all that was launched is done */

static Kernel *kernel(const void *function) {
    size_t at = ((uintptr_t)function * 11400714819323198485ull) >> 45;
    while (kernels[at].function && kernels[at].function != function) at = (at + 1) % SLOTS;
    kernels[at].function = function;
    return &kernels[at];
}

void null_count(int what) {
    pthread_mutex_lock(&lock);
    counts[what]++;
    pthread_mutex_unlock(&lock);
}

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000ll + at.tv_nsec;
}

void null_launched(const void *function, const char *name) {
    const char *microseconds = getenv("NULL_GPU_KERNEL_MICROSECONDS");
    pthread_mutex_lock(&lock);
    if (microseconds) done_at = (done_at > now() ? done_at : now()) + 1000ll * atoi(microseconds);
    counts[LAUNCHES]++;
    Kernel *one = kernel(function);
    one->launches++;
    if (name) one->name = name;
    pthread_mutex_unlock(&lock);
}

void null_waited(const char *how) {
    null_count(WAITS);
    int64_t left = done_at - now();
    if (left > 0) nanosleep(&(struct timespec){left / 1000000000, left % 1000000000}, NULL);
    if (getenv("NULL_GPU_SAYS_WAITS")) fprintf(stderr, "null gpu: %s\n", how);
}

/* What Python calls by ctypes. */
void null_gpu_launch(void) { null_launched((const void *)null_gpu_launch, "computed by the CPU"); }
uint64_t null_gpu_count(int what) { return counts[what]; }
unsigned null_gpu_slots(void) { return SLOTS; }
const char *null_gpu_kernel(unsigned at, uint64_t *launches) {
    *launches = kernels[at].launches;
    return kernels[at].name ? kernels[at].name : "";
}

/* Registration, as nvcc's code calls it when a library is loaded. */
typedef struct { unsigned x, y, z; } Size;
void **__cudaRegisterFatBinary(void *code) {
    void **handle = malloc(sizeof *handle);
    return *handle = code, handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterFunction(void **handle, const char *function, char *on_device, const char *name, int limit, void *a,
                            void *b, void *c, void *d, int *e) {
    kernel(function)->name = name;
}
void __cudaRegisterVar(void **handle, char *v, char *a, const char *name, int e, size_t bytes, int c, int g) {}

static __thread struct { Size grid, block; size_t shared; void *stream; } configured;
unsigned __cudaPushCallConfiguration(Size grid, Size block, size_t shared, void *stream) {
    configured.grid = grid, configured.block = block, configured.shared = shared, configured.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(Size *grid, Size *block, size_t *shared, void *stream) {
    *grid = configured.grid, *block = configured.block, *shared = configured.shared;
    return *(void **)stream = configured.stream, cudaSuccess;
}

cudaError_t __cudaGetKernel(void **found, const void *function) { return *found = (void *)function, cudaSuccess; }
cudaError_t __cudaLaunchKernel(void *k, Size grid, Size block, void **arguments, size_t shared, void *stream) {
    return null_launched(k, NULL), cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void *k, Size grid, Size block, void **arguments, size_t shared, void *stream) {
    return null_launched(k, NULL), cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const void *configuration, const void *k, void **arguments) {
    return null_launched(k, NULL), cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *k) {
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024, found->numRegs = 32, found->ptxVersion = found->binaryVersion = 90;
    return found->maxDynamicSharedSizeBytes = 232448, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *found, const void *k, int block, size_t shared,
                                                                   unsigned flags) {
    return *found = 2, cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void **found, const void *symbol) {
    static char symbols[1 << 16];
    return *found = symbols, cudaSuccess;
}

/* Kernels that are compiled while the program runs (Triton). */
int cuModuleLoad(void **module, const char *path) { return *module = (void *)1, 0; }
int cuModuleLoadData(void **module, const void *code) { return *module = (void *)1, 0; }
int cuModuleUnload(void *module) { return 0; }
int cuModuleGetFunction(void **found, void *module, const char *name) {
    *found = strdup(name);
    return kernel(*found)->name = *found, 0;
}
int cuFuncGetAttribute(int *found, int which, void *k) { return *found = which == 0 ? 1024 : which == 4 ? 32 : 0, 0; }
int cuFuncSetAttribute(void *k, int which, int value) { return 0; }
int cuFuncSetCacheConfig(void *k, int value) { return 0; }
int cuLaunchKernelEx(const void *configuration, void *k, void **arguments, void **more) {
    return null_launched(k, NULL), 0;
}
int cuLaunchKernel(void *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **more) {
    return null_launched(k, NULL), 0;
}
int cuOccupancyMaxActiveClusters(int *found, void *k, const void *configuration) { return *found = 66, 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *found, void *k, int block, size_t shared) { return *found = 2, 0; }
int cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream) {
    return null_launched((const void *)cuMemsetD32Async, "memset"), 0;
}

/* Streams and events. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *found, unsigned flags, int priority) {
    static uintptr_t last = 0x1000;
    return *found = (void *)__sync_add_and_fetch(&last, 16), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *found, unsigned flags) {
    return cudaStreamCreateWithPriority(found, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *found) { return cudaStreamCreateWithPriority(found, 0, 0); }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *found) { return *found = 0, cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return null_waited("waits for a stream"), cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return null_waited("waits for the device"), cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *found) {
    return *found = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *found, unsigned long long *id,
                                     void *graph, void *d, void *e, size_t *count) {
    return cudaStreamIsCapturing(s, found);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) { return cudaSuccess; }
cudaError_t cudaStreamAddCallback(cudaStream_t s, void (*call)(cudaStream_t, cudaError_t, void *), void *with,
                                  unsigned flags) {
    return call(s, cudaSuccess, with), cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*call)(void *), void *with) { return call(with), cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *found, unsigned flags) {
    return *found = calloc(1, sizeof(struct timespec)), cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *found) { return cudaEventCreateWithFlags(found, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return free(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
    return clock_gettime(CLOCK_MONOTONIC, (struct timespec *)event), cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned flags) {
    return cudaEventRecord(event, s);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return null_waited("waits for an event"), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    struct timespec *a = (void *)from, *b = (void *)to;
    return *milliseconds = (b->tv_sec - a->tv_sec) * 1e3 + (b->tv_nsec - a->tv_nsec) / 1e6, cudaSuccess;
}
