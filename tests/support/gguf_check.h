/* gguf_check: opening files made in memory, for the tests of the reader. */
#ifndef TEST_GGUF_CHECK_H
#define TEST_GGUF_CHECK_H

#include "model/files/gguf.h"
#include "support/bytes.h"

/* Opens a copy of exactly n bytes, so that a read behind the end shows up; the caller frees *copy.
 */
weft_status gguf_open_copy(const uint8_t *data, size_t n, wf_gguf **out, uint8_t **copy);
/* Fails the test unless gguf_good() opens as it should. */
void gguf_good_opens(void);

#endif
