/* Takes an epoch of raw records and says how often each sample came; tensors outlive their batch,
 * batches outlive the session, and all is given back. Arguments: dataset, options. It is C11 and
 * C++17. */
#include <shade_client.h>

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

static int check(int code, const char *what) {
    if (code != SHADE_OK) {
        fprintf(stderr, "%s: code %d: %s\n", what, code, shade_error());
        exit(1);
    }
    return code;
}

int main(int count, char **arguments) {
    if (count != 3 || shade_abi() != 1) return 2;
    shade_session *session = NULL;
    if (shade_open(arguments[1], "{", &session) != SHADE_USAGE || strlen(shade_error()) == 0) return 3;
    if (shade_open(NULL, "{}", &session) != SHADE_USAGE) return 4;
    check(shade_open(arguments[1], arguments[2], &session), "shade_open");
    char *json = NULL;
    check(shade_info(session, &json), "shade_info");
    puts(json);
    shade_free(json);

    shade_batch *batch = NULL, *kept = NULL;
    if (shade_next(session, 1.0, &batch) != SHADE_USAGE) return 5;
    check(shade_start_epoch(session, 0, 0), "shade_start_epoch");
    struct DLManagedTensor *last = NULL;
    int code;
    while ((code = shade_next(session, 60.0, &batch)) == SHADE_OK) {
        shade_batch_info info;
        memset(&info, 0, sizeof info);
        info.size = sizeof info;
        check(shade_batch_describe(batch, &info), "shade_batch_describe");
        struct DLManagedTensor *ids = NULL;
        check(shade_batch_tensor(batch, "ids", &ids), "shade_batch_tensor");
        if (shade_batch_tensor(batch, "images", &last) != SHADE_USAGE) return 6;
        float *losses = (float *)calloc(info.rows, sizeof *losses);
        for (uint32_t row = 0; row < info.rows; ++row) {
            const uint8_t *bytes = NULL;
            size_t len = 0, sum = 0;
            check(shade_batch_record(batch, row, &bytes, &len), "shade_batch_record");
            for (size_t at = 0; at < len; ++at) sum += bytes[at];
            printf("%lld %zu %zu\n", (long long)((int64_t *)ids->data)[row], len, sum);
            losses[row] = (float)row;
        }
        check(shade_report(session, batch, losses, info.rows), "shade_report");
        if (shade_report(session, batch, losses, info.rows + 1) != SHADE_USAGE) return 7;
        free(losses);
        if (last != NULL) last->deleter(last);
        last = ids;
        shade_batch_release(kept);
        kept = batch;
    }
    if (code != SHADE_END) check(code, "shade_next");
    /* It stays at its end. */
    if (shade_next(session, 60.0, &batch) != SHADE_END) return 10;
    uint8_t *state = NULL;
    size_t len = 0;
    check(shade_save(session, &state, &len), "shade_save");
    uint32_t epoch = 0, first = 1;
    check(shade_load(session, state, len, &epoch, &first), "shade_load");
    if (epoch != 1 || first != 0) return 8;
    shade_free(state);
    shade_close(session);
    shade_batch_release(kept);
    if (((int64_t *)last->data)[0] < 0) return 9;
    last->deleter(last);
    return 0;
}
