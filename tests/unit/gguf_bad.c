/* gguf_bad: malformed files. Each must give an error whose message names what is wrong, and leave nothing behind; a
 * good file must open afterwards. Cases are rows of a table: a file in words, their argument, and a piece of the
 * message. */
#include "support/gguf_check.h"
#include "support/suite.h"

/* ---- files in words -------------------------------------------------------------------------- */

/* `$` stands for the argument of a case. Words, and what follows them: good; patch AT SIZE: the argument there; head
 * TENSORS ENTRIES; key NAME TYPE; array NAME TYPE COUNT; tensor NAME DIMENSIONS TYPE OFFSET; str TEXT; u8, u16, u32,
 * u64 NUMBER; hex BYTES; zero, fill, less N: zeros, letters n, fewer bytes; end N: so many bytes of data, aligned. */
static const char n_bytes[] = "hex 4747554603000000 less $", magic[] = "good patch 0 4", version[] = "good patch 4 4",
                  n_tensors[] = "good patch 8 8", n_kv[] = "good patch 16 8";
/* One metadata entry; zeros follow what is wrong. */
static const char key_length[] = "head 0 1 u64 $ zero 64", key_long[] = "head 0 1 u64 $ zero 64 fill $ u32 4 u32 0",
                  key_nul[] = "head 0 1 u64 3 hex 6b006b u32 4 u32 0", value_type[] = "head 0 1 key the.key $ zero 64",
                  value_missing[] = "head 0 1 key the.key $", string_length[] = "head 0 1 key the.key 8 u64 $ zero 64",
                  bool_value[] = "head 0 1 key the.key 7 u8 $",
                  bool_item[] = "head 0 1 array the.key 7 3 u8 0 u8 1 u8 $",
                  item_type[] = "head 0 1 array the.key $ 1 zero 64", count_u8[] = "head 0 1 array the.key 0 $ zero 64",
                  count_f64[] = "head 0 1 array the.key 12 $ zero 64",
                  count_strings[] = "head 0 1 array the.key 8 $ zero 64",
                  item_length[] = "head 0 1 array the.key 8 2 str fine u64 $ zero 64",
                  key_twice[] = "head 0 3 key the.key 4 u32 1 key another.key 4 u32 1 key the.key 8 u64 0",
                  key_control[] = "head 0 1 key the\033[2Jkey $",
                  alignment[] = "head 0 1 key general.alignment 4 u32 $",
                  alignment_type[] = "head 0 1 key general.alignment $ u64 32",
                  alignment_text[] = "head 0 1 key general.alignment 8 u64 0",
                  split_count[] = "head 0 1 key split.count 2 u16 $", split_type[] = "head 0 1 key split.count 8 str 3";
/* Tensors. */
static const char n_dims[] = "head 1 0 str the.tensor u32 $ u64 1 u64 1 u64 1 u64 1 u64 1 u64 1 u64 1 u64 1 end 64",
                  dim0[] = "head 1 0 tensor the.tensor $,1 0 0 end 64",
                  dim1[] = "head 1 0 tensor the.tensor 4,$ 0 0 end 64",
                  dims_all[] = "head 1 0 tensor the.tensor $,$,$,$ 0 0 end 64",
                  tensor_type[] = "head 1 0 tensor the.tensor 256 $ 0 end 2048",
                  row_q4_0[] = "head 1 0 tensor the.tensor $,32 2 0 end 65536",
                  row_q6_k[] = "head 1 0 tensor the.tensor $,256 14 0 end 65536",
                  tensor_twice[] = "head 3 0 tensor the.tensor 1 0 0 tensor another.tensor 1 0 32 "
                                   "tensor the.tensor 1 0 64 end 96",
                  tensor_name[] = "head 1 0 u64 $ fill $ u32 1 u64 1 u32 0 u64 0 end 4",
                  tensor_name_length[] = "head 1 0 u64 $ end 64",
                  tensor_name_nul[] = "head 1 0 u64 5 hex 7465006e6f u32 1 u64 1 end 64",
                  offset[] = "head 1 0 tensor the.tensor 16 0 $ end 128",
                  second_offset[] = "head 3 0 tensor second.tensor 8 0 $ tensor first.tensor 25 0 0 "
                                    "tensor third.tensor 8 0 256 end 512",
                  data_missing[] = "head 1 0 tensor the.tensor 16 0 0 end 64 less $";

static void put_tensor(bytes *b, const char *name, const char *dims, uint64_t type, uint64_t at, uint64_t arg)
{
    uint64_t d[4];
    uint32_t n = 0;
    for (const char *p = dims; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        d[n++] = *p == '$' ? arg : strtoull(p, NULL, 0);
    gguf_tensor(b, name, n, d, (uint32_t)type, at);
}

static void put_hex(bytes *b, const char *hex)
{
    for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2) bytes_u8(b, (uint8_t)byte);
}

static void build(bytes *b, const char *words, uint64_t arg)
{
    char text[200], *rest = text, *w, *name;
    uint64_t x;
    wf_copy(text, sizeof text, words);
#define WORD   strtok_r(NULL, " ", &rest)
#define NUMBER (*(w = WORD) == '$' ? arg : strtoull(w, NULL, 0))
    for (char *what = strtok_r(text, " ", &rest); what; what = WORD) {
        if (!strcmp(what, "good")) gguf_good(b);
        else if (!strcmp(what, "patch")) x = NUMBER, memcpy(b->data + x, &arg, NUMBER);
        else if (!strcmp(what, "head")) x = NUMBER, gguf_head(b, 3, x, NUMBER);
        else if (!strcmp(what, "key")) name = WORD, gguf_key(b, name, (uint32_t)NUMBER);
        else if (!strcmp(what, "array")) name = WORD, x = NUMBER, gguf_array(b, name, (uint32_t)x, NUMBER);
        else if (!strcmp(what, "tensor")) {
            const char *dims = (name = WORD, WORD);
            x = NUMBER, put_tensor(b, name, dims, x, NUMBER, arg);
        } else if (!strcmp(what, "str")) bytes_str(b, WORD);
        else if (*what == 'u') x = NUMBER, bytes_put(b, &x, strtoul(what + 1, NULL, 10) / 8);
        else if (!strcmp(what, "hex")) put_hex(b, WORD);
        else if (!strcmp(what, "zero")) bytes_zero(b, NUMBER);
        else if (!strcmp(what, "fill")) x = NUMBER, bytes_zero(b, x), memset(b->data + b->len - x, 'n', x);
        else if (!strcmp(what, "less")) b->len -= NUMBER;
        else if (!strcmp(what, "end")) bytes_align(b, 32), bytes_zero(b, NUMBER);
        else fail_msg("%s", what);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

#define P(n) ((uint64_t)1 << (n))
#define F    WEFT_ERR_FORMAT
#define U    WEFT_ERR_UNSUPPORTED

static const struct {
    const char *words;
    uint64_t arg;
    weft_status status; /* WEFT_OK: the neighbour of a bad case, which must open */
    const char *message;
} cases[] = {
    {n_bytes, 8, F, "empty"},
    {n_bytes, 7, F, "magic"},
    {n_bytes, 5, F, "magic"},
    {n_bytes, 4, F, "version"},
    {n_bytes, 0, F, "number of tensors"},
    {magic, 0x04034b50, F, "not a GGUF file: it begins with bytes 50 4b 03 04"},
    {magic, 0x47475546, F, "little-endian"},
    {version, 0, F, "version 0;"},
    {version, 1, F, "version 1;"},
    {version, 2, WEFT_OK, ""},
    {version, 4, F, "version 4;"},
    {version, 99, F, "version 99;"},
    {version, 0x03000000, F, "big-endian"},
    {n_tensors, 0x7FFFFFFF, F, "number of tensors is 2147483647"},
    {n_tensors, P(32), F, "number of tensors is 4294967296"},
    {n_tensors, P(63), F, "number of tensors is 9223372036854775808"},
    {n_tensors, UINT64_MAX, F, "number of tensors is 18446744073709551615"},
    {n_tensors, 3, F, "tensor"},
    {n_kv, 0x7FFFFFFF, F, "number of metadata entries is 2147483647"},
    {n_kv, P(32), F, "number of metadata entries is 4294967296"},
    {n_kv, P(63), F, "number of metadata entries is 9223372036854775808"},
    {n_kv, UINT64_MAX, F, "number of metadata entries is 18446744073709551615"},
    {n_kv, 6, F, "name of a tensor is empty"},
    {key_length, 0, F, "metadata key is empty"},
    {key_length, 65, F, "metadata entry 0 of 1: its key needs 65 bytes"},
    {key_length, P(31), F, "metadata entry 0 of 1: its key needs 2147483648 bytes"},
    {key_length, P(63), F, "metadata entry 0 of 1: its key"},
    {key_length, UINT64_MAX, F, "metadata entry 0 of 1: its key"},
    {key_long, 65536, F, "65536 bytes, more than 65535"},
    {key_nul, 0, F, "metadata key 'k?k' contains a NUL byte"},
    {value_type, 13, F, "'the.key': value type 13"},
    {value_type, 0xFFFFFFFF, F, "'the.key': value type 4294967295"},
    {value_missing, WF_GGUF_U8, F, "'the.key': its value"},
    {value_missing, WF_GGUF_F64, F, "'the.key': its value"},
    {value_missing, WF_GGUF_STRING, F, "'the.key': its string"},
    {value_missing, WF_GGUF_ARRAY, F, "'the.key': its type"},
    {value_missing, WF_GGUF_BOOL, F, "'the.key': its value"},
    {string_length, 65, F, "'the.key': its string needs 65 bytes"},
    {string_length, P(63), F, "'the.key': its string"},
    {string_length, UINT64_MAX, F, "'the.key': its string"},
    {bool_value, 1, WEFT_OK, ""},
    {bool_value, 2, F, "'the.key': a bool is 2"},
    {bool_item, 0, WEFT_OK, ""},
    {bool_item, 255, F, "'the.key': a bool is 255"},
    {item_type, WF_GGUF_ARRAY, F, "'the.key': arrays of arrays"},
    {item_type, 13, F, "'the.key': value type 13"},
    {item_type, 0xFFFFFFFF, F, "'the.key': value type"},
    {count_u8, 64, WEFT_OK, ""},
    {count_u8, 65, F, "'the.key': an array of 65 u8"},
    {count_u8, P(63), F, "'the.key': an array of 9223372036854775808 u8"},
    {count_f64, 8, WEFT_OK, ""},
    {count_f64, 9, F, "'the.key': an array of 9 f64"},
    {count_f64, P(61), F, "'the.key': an array of 2305843009213693952 f64"},
    {count_f64, P(63), F, "'the.key': an array of"},
    {count_strings, 8, WEFT_OK, ""},
    {count_strings, 9, F, "'the.key': an array of 9 string"},
    {count_strings, P(61), F, "'the.key': an array of"},
    {count_strings, P(63), F, "'the.key': an array of"},
    {item_length, 64, WEFT_OK, ""},
    {item_length, 65, F, "'the.key': a string of its array needs 65 bytes"},
    {item_length, P(63), F, "'the.key': a string of its array"},
    {key_twice, 0, F, "metadata 'the.key' appears twice"},
    {key_control, 99, F, "'the?[2Jkey': value type 99"},
    {alignment, 0, F, "'general.alignment' is 0;"},
    {alignment, 3, F, "'general.alignment' is 3;"},
    {alignment, 4, F, "'general.alignment' is 4;"},
    {alignment, 8, WEFT_OK, ""},
    {alignment, 48, F, "'general.alignment' is 48;"},
    {alignment, P(20), WEFT_OK, ""},
    {alignment, P(21), F, "'general.alignment' is 2097152;"},
    {alignment, P(31), F, "'general.alignment' is 2147483648;"},
    {alignment_type, WF_GGUF_U64, F, "'general.alignment' is of type u64"},
    {alignment_type, WF_GGUF_I64, F, "'general.alignment' is of type i64"},
    {alignment_type, WF_GGUF_F64, F, "'general.alignment' is of type f64"},
    {alignment_text, 0, F, "'general.alignment' is of type string"},
    {split_count, 0, WEFT_OK, ""},
    {split_count, 1, WEFT_OK, ""},
    {split_count, 2, U, "llama-gguf-split --merge"},
    {split_count, 65535, U, "split into 65535 files"},
    {split_type, 0, F, "'split.count' is of type string"},
    {n_dims, 0, F, "'the.tensor': 0 dimensions"},
    {n_dims, 5, F, "'the.tensor': 5 dimensions"},
    {n_dims, 8, F, "'the.tensor': 8 dimensions"},
    {n_dims, 0xFFFFFFFF, F, "'the.tensor': 4294967295 dimensions"},
    {dim0, 16, WEFT_OK, ""},
    {dim0, 17, F, "'the.tensor': 68 bytes at offset 0"},
    {dim0, 0, F, "'the.tensor': dimension 0 is 0"},
    {dim1, 0, F, "'the.tensor': dimension 1 is 0"},
    {dim0, P(42) + 1, F, "'the.tensor': 17592186044420 bytes at offset 0"},
    {dim0, INT64_MAX, F, "'the.tensor': its size overflows"},
    {dim0, P(62), F, "'the.tensor': its size overflows"},
    {dim0, P(63), F, "'the.tensor': its 2 dimensions overflow"},
    {dim0, UINT64_MAX, F, "'the.tensor': its 2 dimensions overflow"},
    {dim1, P(62), F, "'the.tensor': its 2 dimensions overflow"},
    {dims_all, P(16), F, "'the.tensor': its 4 dimensions overflow"},
    {dims_all, P(32), F, "'the.tensor': its 4 dimensions overflow"},
    {dims_all, P(63), F, "'the.tensor': its 4 dimensions overflow"},
    {tensor_type, 12, WEFT_OK, ""}, /* Q4_K: known, even though not readable */
    {tensor_type, 4, F, "'the.tensor': tensor type 4 (Q4_2)"},
    {tensor_type, 31, F, "'the.tensor': tensor type 31 (Q4_0_4_4)"},
    {tensor_type, 99, F, "'the.tensor': tensor type 99 (unknown)"},
    {tensor_type, 0xFFFFFFFF, F, "'the.tensor': tensor type 4294967295"},
    {row_q4_0, 32, WEFT_OK, ""},
    {row_q4_0, 33, F, "'the.tensor': rows of 33 elements are not a multiple of the Q4_0 block of 32"},
    {row_q4_0, 1, F, "'the.tensor': rows of 1 elements"},
    {row_q6_k, 128, F, "'the.tensor': rows of 128 elements are not a multiple of the Q6_K block of 256"},
    {tensor_twice, 0, F, "tensor 'the.tensor' appears twice"},
    {tensor_name, 64, WEFT_OK, ""},
    {tensor_name, 65, F, "nnn...' has 65 bytes, more than 64"},
    {tensor_name, 0, F, "name of a tensor is empty"},
    {tensor_name_length, P(31), F, "tensor 0 of 1: its name"},
    {tensor_name_length, P(63), F, "tensor 0 of 1: its name"},
    {tensor_name_nul, 0, F, "tensor 'te?no' contains a NUL byte"},
    {offset, 32, WEFT_OK, ""},
    {offset, 64, WEFT_OK, ""},
    {offset, 8, F, "'the.tensor': offset 8 is not a multiple of the alignment 32"},
    {offset, 96, F, "'the.tensor': 64 bytes at offset 96 lie outside the 128 bytes"},
    {offset, P(40), F, "'the.tensor': 64 bytes at offset 1099511627776 lie outside"},
    {offset, P(63), F, "'the.tensor': 64 bytes at offset 9223372036854775808 lie outside"},
    {offset, 0 - (uint64_t)32, F, "'the.tensor': 64 bytes at offset 18446744073709551584 lie outside"},
    {second_offset, 128, WEFT_OK, ""},
    {second_offset, 96, F, "tensors 'first.tensor' and 'second.tensor' overlap"},
    {second_offset, 0, F, "overlap"},
    {second_offset, 256, F, "overlap"},
    {data_missing, 0, WEFT_OK, ""},
    {data_missing, 1, F, "'the.tensor': 64 bytes at offset 0 lie outside the 63 bytes"},
    {data_missing, 64, F, "'the.tensor': 64 bytes at offset 0 lie outside the 0 bytes"},
    {data_missing, 65, F, "'the.tensor': 64 bytes at offset 0 lie outside the 0 bytes"},
};

static void table(void **state)
{
    int bad = 0;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        bytes b = {0};
        uint8_t *copy;
        wf_gguf *g = (wf_gguf *)&b; /* must become NULL on failure */
        build(&b, cases[i].words, cases[i].arg);
        weft_status s = gguf_open_copy(b.data, b.len, &g, &copy);
        const char *message = s ? wf_error() : "";
        if (s != cases[i].status || (s != WEFT_OK) != (g == NULL) ||
            !strstr(message, cases[i].message) || (s && !strstr(message, "memory.gguf: "))) {
            print_error("case %zu: %s \"%s\", expected %s \"%s\"\n", i, weft_status_name(s),
                        message, weft_status_name(cases[i].status), cases[i].message);
            bad++;
        }
        if (!s) wf_gguf_close(g);
        free(copy);
        bytes_free(&b);
    }
    gguf_good_opens();
    assert_int_equal(bad, 0);
}

SUITE(gguf_bad, NULL, NULL, CASE(table))
