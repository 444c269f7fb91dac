/* Loaded into the packer by LD_PRELOAD: has closing a file fail as NFS has it over quota, and notes which files are synced.
 * SHADE_TEST_FAIL_CLOSE is a part of the paths whose closing fails, SHADE_TEST_FAIL_WRITE of those that cannot be written to
 * as the disk is full, SHADE_TEST_SYNCED a file that paths are appended to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void path_of(int fd, char *path, size_t room) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, room - 1);
    path[len < 0 ? 0 : len] = '\0';
}

int close(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    const char *part = getenv("SHADE_TEST_FAIL_CLOSE");
    char path[4096];
    path_of(fd, path, sizeof path);
    int closed = real(fd);
    if (part && strstr(path, part)) {
        errno = EDQUOT;
        return -1;
    }
    return closed;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    ssize_t (*real)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const char *part = getenv("SHADE_TEST_FAIL_WRITE");
    char path[4096];
    if (part) {
        path_of(fd, path, sizeof path);
        if (strstr(path, part)) {
            errno = ENOSPC;
            return -1;
        }
    }
    return real(fd, bytes, count);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    const char *notes = getenv("SHADE_TEST_SYNCED");
    char path[4096 + 1];
    if (notes) {
        path_of(fd, path, sizeof path - 1);
        strcat(path, "\n");
        int file = open(notes, O_WRONLY | O_CREAT | O_APPEND, 0666);
        if (write(file, path, strlen(path)) < 0) abort();
        ((int (*)(int))dlsym(RTLD_NEXT, "close"))(file);
    }
    return real(fd);
}
