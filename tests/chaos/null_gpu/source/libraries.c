/* cuBLAS: products are counted. NCCL: a communicator of one rank, whose collectives are copies. */
#include "null_gpu.h"

static void *handle(void) { return malloc(64); }
static int product(void) { return null_launched((const void *)product, "product"), 0; }

int cublasCreate_v2(void **found) { return *found = handle(), 0; }
int cublasDestroy_v2(void *h) { return free(h), 0; }
int cublasGetMathMode(void *h, int *found) { return *found = 0, 0; }
int cublasGetPointerMode_v2(void *h, int *found) { return *found = 0, 0; }
int cublasGemmEx(void) { return product(); }
int cublasGemmStridedBatchedEx(void) { return product(); }
int cublasSgemm_v2(void) { return product(); }
int cublasSgemmStridedBatched(void) { return product(); }
size_t cublasLtGetVersion(void) { return 130000; }
int cublasLtMatmul(void) { return product(); }
int cublasLtMatmulDescCreate(void **found, int compute, int scale) { return *found = handle(), 0; }
int cublasLtMatmulDescDestroy(void *d) { return free(d), 0; }
int cublasLtMatrixLayoutCreate(void **found, int type, uint64_t rows, uint64_t columns, int64_t lead) {
    return *found = handle(), 0;
}
int cublasLtMatrixLayoutDestroy(void *d) { return free(d), 0; }
int cublasLtMatmulPreferenceCreate(void **found) { return *found = handle(), 0; }
int cublasLtMatmulPreferenceDestroy(void *d) { return free(d), 0; }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int asked,
                                   void *results, int *found) {
    memset(results, 0, 96); /* one cublasLtMatmulHeuristicResult_t: no workspace, success */
    return *found = 1, 0;
}

typedef struct { char bytes[128]; } Id;
static const size_t WIDTH[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* by ncclDataType_t */
static int moved(const void *from, void *to, size_t count, int type) {
    null_launched((const void *)moved, "collective");
    if (from != to) null_copy(to, from, count * WIDTH[type], 1);
    return 0;
}

int ncclGetVersion(int *found) { return *found = 22800, 0; }
int ncclGetUniqueId(Id *found) { return memset(found, 1, sizeof *found), 0; }
const char *ncclGetErrorString(int e) { return "an error of the null GPU"; }
const char *ncclGetLastError(void *c) { return ""; }
int ncclCommInitRank(void **found, int ranks, Id id, int rank) { return *found = handle(), ranks == 1 ? 0 : 5; }
int ncclCommInitRankConfig(void **found, int ranks, Id id, int rank, void *settings) {
    return *found = handle(), ranks == 1 ? 0 : 5;
}
int ncclCommSplit(void *c, int color, int key, void **found, void *settings) { return *found = handle(), 0; }
int ncclCommGetAsyncError(void *c, int *found) { return *found = 0, 0; }
int ncclCommCount(void *c, int *found) { return *found = 1, 0; }
int ncclCommUserRank(void *c, int *found) { return *found = 0, 0; }
int ncclAllReduce(const void *from, void *to, size_t n, int type, int how, void *c, void *s) {
    return moved(from, to, n, type);
}
int ncclReduce(const void *from, void *to, size_t n, int type, int how, int root, void *c, void *s) {
    return moved(from, to, n, type);
}
int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, void *c, void *s) {
    return moved(from, to, n, type);
}
int ncclAllGather(const void *from, void *to, size_t n, int type, void *c, void *s) { return moved(from, to, n, type); }
int ncclReduceScatter(const void *from, void *to, size_t n, int type, int how, void *c, void *s) {
    return moved(from, to, n, type);
}
