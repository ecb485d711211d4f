/* One card, as an H100 describes itself to the runtime, the driver and NVML; its readings are constant. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "null_gpu.h"

#define VERSION 13000
static __thread cudaError_t last;

cudaError_t null_fail(cudaError_t error) { return last = error; }
cudaError_t cudaGetLastError(void) {
    cudaError_t found = last;
    return last = cudaSuccess, found;
}
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorName(cudaError_t e) { return e ? "cudaErrorOfNullGpu" : "cudaSuccess"; }
const char *cudaGetErrorString(cudaError_t e) {
    return !e ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" : "an error of the null GPU";
}

static int capability(void) {
    const char *asked = getenv("NULL_GPU_CAPABILITY");
    return asked ? atoi(asked) : 90;                                  /* that of an H100 */
}

int null_attribute(int which) {
    switch (which) {
        case 1: case 2: case 3: return 1024;                          /* threads of a block */
        case 4: return 64;
        case 5: return 2147483647;                                    /* blocks of a grid */
        case 6: case 7: return 65535;
        case 8: return 49152;                                         /* shared memory of a block */
        case 10: return 32;                                           /* threads of a warp */
        case 12: case 82: return 65536;                               /* registers */
        case 13: return 1980000;                                      /* clocks, kHz */
        case 16: return 132;                                          /* multiprocessors */
        case 36: return 2619000;
        case 37: return 5120;                                         /* bits of the memory's bus */
        case 38: return 52428800;                                     /* level 2 cache */
        case 39: return 2048;                                         /* threads of a multiprocessor */
        case 41: case 83: case 89: case 90: case 95: case 115: return 1;
        case 75: return capability() / 10;
        case 76: return capability() % 10;
        case 81: return 233472;
        case 97: return 232448;
        case 106: return 32;
        default: return 0;
    }
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    memset(found, 0, sizeof *found);
    strcpy(found->name, NAME);
    found->totalGlobalMem = null_total();
    found->major = null_attribute(75), found->minor = null_attribute(76);
    found->multiProcessorCount = null_attribute(16), found->warpSize = 32;
    found->maxThreadsPerBlock = 1024, found->maxThreadsPerMultiProcessor = 2048, found->maxBlocksPerMultiProcessor = 32;
    for (int i = 0; i < 3; i++) {
        found->maxThreadsDim[i] = null_attribute(2 + i);
        found->maxGridSize[i] = null_attribute(5 + i);
    }
    found->sharedMemPerBlock = 49152, found->sharedMemPerBlockOptin = 232448;
    found->sharedMemPerMultiprocessor = 233472, found->totalConstMem = 65536;
    found->regsPerBlock = found->regsPerMultiprocessor = 65536;
    found->l2CacheSize = null_attribute(38), found->memoryBusWidth = null_attribute(37);
    return found->unifiedAddressing = found->concurrentKernels = 1, cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *found) { return *found = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *found) { return *found = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? null_fail(cudaErrorInvalidDevice) : cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *found) { return *found = VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *found) { return *found = VERSION, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *found, int which, int device) {
    return *found = null_attribute(which), cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *found, int room, int device) {
    return snprintf(found, room, "0000:01:00.0"), cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *found, int a, int b) { return *found = 0, cudaSuccess; }

/* torch and Triton look the driver's functions up by name; one that is not here does nothing. */
static int nothing(void) { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version, unsigned long long flags,
                                             int *status) {
    char newer[128];
    snprintf(newer, sizeof newer, "%s_v2", name);
    if (!(*found = dlsym(RTLD_DEFAULT, name)) && !(*found = dlsym(RTLD_DEFAULT, newer))) *found = (void *)nothing;
    if (status) *status = 0;
    return cudaSuccess;
}

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *found) { return *found = VERSION, 0; }
int cuDeviceGet(int *found, int index) { return *found = index, 0; }
int cuDeviceGetCount(int *found) { return *found = 1, 0; }
int cuDeviceGetAttribute(int *found, int which, int device) { return *found = null_attribute(which), 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
    return *flags = 0, *is_active = 1, 0;
}
int cuDevicePrimaryCtxRetain(void **found, int device) { return *found = (void *)1, 0; }
int cuCtxGetCurrent(void **found) { return *found = (void *)1, 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxGetDevice(int *found) { return *found = 0, 0; }
int cuCtxGetLimit(size_t *found, int which) { return *found = 1 << 20, 0; }
int cuCtxSetLimit(int which, size_t value) { return 0; }
int cuCtxSynchronize(void) { return null_waited("waits for a context"), 0; }
int cuGetErrorString(int e, const char **found) { return *found = "an error of the null GPU", 0; }
int cuGetErrorName(int e, const char **found) { return *found = "cudaErrorOfNullGpu", 0; }

/* NVML. */
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlInit(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) { return "an error of the null GPU"; }
int nvmlSystemGetCudaDriverVersion_v2(int *found) { return *found = VERSION, 0; }
int nvmlSystemGetDriverVersion(char *found, unsigned room) { return snprintf(found, room, "580.00"), 0; }
int nvmlDeviceGetCount_v2(unsigned *found) { return *found = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **found) { return *found = (void *)1, index ? 2 : 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **found) { return *found = (void *)1, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **found) { return *found = (void *)1, 0; }
int nvmlDeviceGetUUID(void *gpu, char *found, unsigned room) {
    return snprintf(found, room, "GPU-00000000-0000-0000-0000-000000000001"), 0;
}
int nvmlDeviceGetName(void *gpu, char *found, unsigned room) { return snprintf(found, room, NAME), 0; }
int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *found) {
    found[0] = null_total(), found[2] = null_used(), found[1] = found[0] - found[2];
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *found) { return found[0] = 97, found[1] = 40, 0; }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *found) { return *found = 500000, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *found) { return *found = 700000, 0; }
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *found) { return *found = 55, 0; }
int nvmlDeviceGetClockInfo(void *gpu, int which, unsigned *found) { return *found = which == 2 ? 2619 : 1980, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *found) { return *found = 0, 0; }
int nvmlDeviceGetComputeRunningProcesses(void *gpu, unsigned *count, void *found) { return *count = 0, 0; }
int nvmlDeviceGetGpuFabricInfoV(void *gpu, void *found) { return 0; } /* all zeros: not supported */
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return 3; }           /* NVML_ERROR_NOT_SUPPORTED */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return 3; }
