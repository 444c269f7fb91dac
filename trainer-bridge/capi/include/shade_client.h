/* shade_client.h: batches of shade for programs in C and C++. How to use it: docs/cpp.md.
 *
 * Every call that can fail returns a code of SHADE_...; shade_error() is the text of this thread's
 * last failure. Threads may share a session and a batch. No call may follow a fork in the child.
 *
 * Generated from src/; tests/header.rs says how. */

#ifndef SHADE_CLIENT_H
#define SHADE_CLIENT_H

#include <stddef.h>
#include <stdint.h>
/* From dlpack.h, which libtorch has in <ATen/dlpack.h>. */
typedef struct DLManagedTensor DLManagedTensor;

// Done.
#define SHADE_OK 0

// The epoch has no further batch.
#define SHADE_END 1

// Nothing came in time. Call again, or give up.
#define SHADE_TIMEOUT 2

// The daemon ended, was killed, or could not be started.
#define SHADE_GONE 3

// A record is damaged or cannot be read; the text names it.
#define SHADE_RECORD 4

// An argument is impossible; the text names it.
#define SHADE_USAGE 5

// Anything else: the system, the daemon's refusal, a defect of shade.
#define SHADE_SYSTEM 6

// A delivered batch. Its memory goes back to the daemon with it and the last of its tensors.
typedef struct shade_batch shade_batch;

// One rank attached to a dataset's daemon.
typedef struct shade_session shade_session;

// Facts about a batch. Set `size` to sizeof(shade_batch_info): later versions have more.
typedef struct shade_batch_info {
  // Bytes of this struct.
  size_t size;
  // The epoch.
  uint32_t epoch;
  // Number of the batch in the epoch.
  uint32_t index;
  // Samples in the batch.
  uint32_t rows;
  // Rows that were in the cache.
  uint32_t hits;
  // Rows that were read.
  uint32_t misses;
  // Samples that are missing, as they are bad.
  uint32_t skipped;
  // Rows that stand in for bad samples.
  uint32_t substituted;
  // Views of each image; 0 for raw records and images of their own sizes.
  uint32_t views;
} shade_batch_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Version of this interface: 1. Another one does not fit programs of this header.
uint32_t shade_abi(void);

// Version of the library, such as "0.1.0".
const char *shade_version(void);

// Why this thread's last call that failed did. Valid until this thread's next failure.
const char *shade_error(void);

// Attaches to the daemon of a dataset, or starts one: $SHADE_LOAD_BIN, else shade-load on PATH.
// options_json is one object with the names of Python's Loader: {"batch_size": 256, "image_size":
// 224}.
int shade_open(const char *dataset, const char *options_json, struct shade_session **out);

// Leaves the daemon. Batches and tensors stay valid. Null does nothing.
void shade_close(struct shade_session *session);

// Facts as a JSON object, for shade_free: samples, classes, batches_per_epoch, content_id, job,
// daemon_pid.
int shade_info(const struct shade_session *session, char **json);

// Starts an epoch at this batch; 0 unless a state was loaded. All ranks do.
int shade_start_epoch(const struct shade_session *session, uint32_t epoch, uint32_t first_batch);

// The epoch's next batch, for shade_batch_release; SHADE_END after the last. Waits up to timeout_s
// seconds; INFINITY is no limit.
int shade_next(const struct shade_session *session, double timeout_s, struct shade_batch **out);

// Fills in the facts about a batch.
int shade_batch_describe(const struct shade_batch *batch, struct shade_batch_info *info);

// A column as a tensor in place: "images" (uint8, or of the option "dtype"), "labels", "ids"
// (int64), "weights" (float32), "flags" (int32). Where images have one size, "crops" (float32,
// rows x 4: left, top, width and height of the part of the source that each shows) and "flipped"
// (uint8; bit 0: mirrored from left to right, bit 1: from top to bottom); with several views
// "images", "crops" and "flipped" are the first one's, and "images.1" and so on the others'. For
// images of their own sizes "heights" and "widths" (int32). "fields.NAME" is an extra field whose
// numbers have one shape in all samples, or a mask (uint8, rows x height x width), with several
// views of the first; "fields.NAME.1" and so on are the others'. Its deleter gives it back.
int shade_batch_tensor(const struct shade_batch *batch, const char *column, DLManagedTensor **out);

// The image of one row as a tensor in place, where images have their own sizes.
int shade_batch_image(const struct shade_batch *batch, uint32_t row, DLManagedTensor **out);

// The record of one row of a raw batch, in place: valid until the batch is released.
int shade_batch_record(const struct shade_batch *batch,
                       uint32_t row,
                       const uint8_t **bytes,
                       size_t *len);

// An extra field of one row, in place: valid until the batch is released. Its bytes are a null
// pointer where the sample has no such field. One whose numbers have one shape in all samples is a
// tensor instead: shade_batch_tensor with "fields.NAME". What follows the image, such as boxes, is
// of the first view; "NAME.1" and so on are those of the others.
int shade_batch_field(const struct shade_batch *batch,
                      const char *name,
                      uint32_t row,
                      const uint8_t **bytes,
                      size_t *len);

// Gives a batch back. Its tensors stay valid. Null does nothing.
void shade_batch_release(struct shade_batch *batch);

// Reports the losses of a batch's first n rows, in their order, for drawing later epochs. The
// batch must be of this session, and not of before shade_load.
int shade_report(const struct shade_session *session,
                 const struct shade_batch *batch,
                 const float *losses,
                 size_t n);

// Reports a validation score, a number; higher is better.
int shade_report_validation(const struct shade_session *session, double score);

// The figures of job and daemon as a JSON object, for shade_free.
int shade_stats(const struct shade_session *session, char **json);

// The training's state after the last delivered batch, for shade_load and shade_free.
int shade_save(const struct shade_session *session, uint8_t **state, size_t *len);

// Restores a state before the first epoch. Start the epoch that it gives, at the batch that it
// gives.
int shade_load(const struct shade_session *session,
               const uint8_t *state,
               size_t len,
               uint32_t *epoch,
               uint32_t *first_batch);

// The memory of the batches, to register it with a device. Unregister it before shade_close. A
// daemon that has replaced one that died ("successors" of shade_stats) has another memory; the one
// before stays mapped, and need not be unregistered earlier.
int shade_payload(const struct shade_session *session, void **address, size_t *len);

// Frees a text or a state. Null does nothing.
void shade_free(void *memory);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHADE_CLIENT_H */
