/* Trains epoch after epoch, and says what each row was: epoch, batch, the daemon's process, and a
 * checksum of each row. At an epoch's end it says batch -1, and goes on unless it is told "end".
 * For tests that kill its daemons. Arguments: dataset, options. */
#include <shade_client.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of dlpack.h that is read here. */
struct DLManagedTensor {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void *context;
    void (*deleter)(struct DLManagedTensor *);
};

static void check(int code, const char *what) {
    if (code != SHADE_OK) {
        fprintf(stderr, "%s: code %d: %s\n", what, code, shade_error());
        exit(1);
    }
}

/* FNV-1a. */
static uint32_t sum_of(uint32_t sum, const void *bytes, size_t len) {
    for (size_t at = 0; at < len; ++at) sum = (sum ^ ((const uint8_t *)bytes)[at]) * 16777619u;
    return sum;
}

static long daemon_of(const shade_session *session) {
    char *json = NULL;
    check(shade_info(session, &json), "shade_info");
    const char *found = strstr(json, "\"daemon_pid\":");
    long pid = found ? strtol(found + strlen("\"daemon_pid\":"), NULL, 10) : 0;
    shade_free(json);
    return pid;
}

static void tell(const shade_batch *batch, long daemon) {
    static const char *const columns[] = {"ids", "labels", "weights", "images"};
    shade_batch_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    check(shade_batch_describe(batch, &info), "shade_batch_describe");
    uint32_t *sums = (uint32_t *)calloc(info.rows, sizeof *sums);
    for (size_t column = 0; column < sizeof columns / sizeof *columns; ++column) {
        struct DLManagedTensor *tensor = NULL;
        check(shade_batch_tensor(batch, columns[column], &tensor), columns[column]);
        size_t bytes = tensor->dtype.bits / 8;
        for (int32_t at = 1; at < tensor->ndim; ++at) bytes *= (size_t)tensor->shape[at];
        for (uint32_t row = 0; row < info.rows; ++row) {
            const uint8_t *data = (const uint8_t *)tensor->data + tensor->byte_offset + row * bytes;
            sums[row] = sum_of(sums[row] ^ 2166136261u, data, bytes);
        }
        tensor->deleter(tensor);
    }
    printf("%" PRIu32 " %" PRIu32 " %ld", info.epoch, info.index, daemon);
    for (uint32_t row = 0; row < info.rows; ++row) printf(" %" PRIu32, sums[row]);
    putchar('\n');
    fflush(stdout);
    free(sums);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    shade_session *session = NULL;
    check(shade_open(arguments[1], arguments[2], &session), "shade_open");
    char answer[8] = "on\n";
    for (uint32_t epoch = 0; strcmp(answer, "end\n") != 0; ++epoch) {
        check(shade_start_epoch(session, epoch, 0), "shade_start_epoch");
        shade_batch *batch = NULL;
        long daemon = daemon_of(session);
        int code;
        while ((code = shade_next(session, 60.0, &batch)) == SHADE_OK) {
            daemon = daemon_of(session);
            tell(batch, daemon);
            shade_batch_release(batch);
        }
        if (code != SHADE_END) check(code, "shade_next");
        printf("%" PRIu32 " -1 %ld\n", epoch, daemon);
        fflush(stdout);
        if (fgets(answer, sizeof answer, stdin) == NULL) return 3;
    }
    shade_close(session);
    return 0;
}
