/* gguf_split: a model in several files, NAME-00001-of-00003.gguf and so on, as llama.cpp writes them: each is a GGUF
 * file with some of the tensors, and says by split.no and split.count which one it is. The first has the metadata. */
#ifndef WF_GGUF_SPLIT_H
#define WF_GGUF_SPLIT_H

#include "model/files/gguf.h"

weft_status wf_gguf_open_part(const char *path, wf_gguf **out); /* opens one file, which may be a part (gguf.c) */
/* If g is the first part of several, opens the others and takes their tensors. Fails for another part, and where one is
 * missing, is of another model, or the parts have not the tensors that the first one counts. */
weft_status wf_gguf_join_parts(wf_gguf *g);

#endif
