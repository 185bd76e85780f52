/* machine: see machine.h. */
#include "plan/machine.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "weft-devices 1"

extern const char wf_known_devices[]; /* devices.S */

static const struct constant {
    const char *name;
    size_t at;
    double unit;
} constants[] = {
    {"memory", offsetof(wf_machine, memory), 1e9},          {"read", offsetof(wf_machine, read), 1e9},
    {"network", offsetof(wf_machine, network), 1e9},        {"f32", offsetof(wf_machine, ops[WF_ARITH_F32]), 1e12},
    {"f16", offsetof(wf_machine, ops[WF_ARITH_F16]), 1e12}, {"q8", offsetof(wf_machine, ops[WF_ARITH_Q8]), 1e12},
    {"flop", offsetof(wf_machine, flop_energy), 1e-12},     {"byte", offsetof(wf_machine, byte_energy), 1e-12},
    {"static", offsetof(wf_machine, static_power), 1},      {"limit", offsetof(wf_machine, power_limit), 1},
    {"latency", offsetof(wf_machine, latency), 1e-6},       {"host", offsetof(wf_machine, host), 1},
    {"fabric", offsetof(wf_machine, fabric), 1e9},          {"far", offsetof(wf_machine, fabric_latency), 1e-6},
};

typedef struct reader {
    const char *want;
    wf_machine *out;
    bool found;
    char known[512]; /* names of all, for the message */
} reader;

/* "read=4370" */
static weft_status read_constant(wf_machine *m, const char *word)
{
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < WF_LEN(constants); i++) {
        const struct constant *c = &constants[i];
        char *end;
        if (strlen(c->name) != n || strncmp(c->name, word, n) || word[n] != '=') continue;
        double v = strtod(word + n + 1, &end);
        if (*end || end == word + n + 1 || !(v > 0 && v < 1e9)) break;
        return *(double *)((char *)m + c->at) = v * c->unit, WEFT_OK;
    }
    return wf_fail(
        WEFT_ERR_FORMAT,
        "'%.32s': want memory, read, network, f32, f16, q8, flop, byte, static, limit, latency, host, fabric or far, "
        "then = and a number above 0",
        word);
}

static weft_status read_device(void *user, char *line)
{
    reader *r = user;
    wf_machine m = {.n_devices = 1};
    char *rest = line, *word = strtok_r(line, " \t", &rest), *name = strtok_r(NULL, " \t", &rest);
    if (strcmp(word, "device") || !name) return wf_fail(WEFT_ERR_FORMAT, "want 'device NAME' and its constants");
    wf_copy(m.name, sizeof m.name, name);
    while ((word = strtok_r(NULL, " \t", &rest))) WF_TRY(read_constant(&m, word));
    bool rate = m.ops[WF_ARITH_F32] > 0 || m.ops[WF_ARITH_F16] > 0;
    if (!(m.memory > 0 && m.read > 0 && rate))
        return wf_fail(WEFT_ERR_FORMAT, "device %s needs memory, read, and f32 or f16", m.name);
    bool any = m.flop_energy > 0 || m.byte_energy > 0 || m.static_power > 0 || m.power_limit > 0;
    if (any && !(m.flop_energy > 0 && m.byte_energy > 0 && m.power_limit > m.static_power))
        return wf_fail(WEFT_ERR_FORMAT, "device %s needs flop, byte and a limit above static power, or none of these",
                       m.name);
    size_t len = strlen(r->known);
    snprintf(r->known + len, sizeof r->known - len, "%s%s", len ? ", " : "", m.name);
    if (strcmp(m.name, r->want)) return WEFT_OK;
    if (r->found) return wf_fail(WEFT_ERR_FORMAT, "device %s appears twice", m.name);
    return r->found = true, *r->out = m, WEFT_OK;
}

static weft_status read_known(reader *r)
{
    char *text = wf_strdup(wf_known_devices);
    weft_status s = text ? wf_parse_lines(text, HEAD, read_device, r) : WEFT_ERR_NOMEM;
    free(text);
    return s;
}

weft_status wf_machine_find(const char *path, const char *name, wf_machine *out)
{
    reader r = {.want = name, .out = out};
    WF_TRY(path ? wf_read_lines(path, HEAD, read_device, &r) : read_known(&r));
    if (r.found) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "'%.32s' is no device of %s; known are: %s", name,
                   path ? path : "weft's table (weft_cost_params.devices takes another)", r.known);
}

wf_machine wf_machine_times(const wf_machine *one, uint32_t n)
{
    wf_machine m = *one;
    m.n_devices *= n;
    m.memory *= n, m.read *= n, m.network *= n, m.static_power *= n, m.power_limit *= n;
    for (size_t i = 0; i < WF_N_ARITH; i++) m.ops[i] *= n;
    if (m.host > 0 && m.n_devices > m.host && m.fabric > 0)
        m.network = m.n_devices * m.fabric, m.latency = m.fabric_latency;
    return m;
}

/* A part of each device goes round twice, once as it is added up and once as it is told. */
double wf_machine_all_reduce(const wf_machine *m, double bytes)
{
    double steps = 2 * (m->n_devices - 1.0);
    return (m->network > 0 ? steps * bytes / m->network : 0) + steps * m->latency;
}

double wf_machine_send(const wf_machine *m, double bytes, bool same_host)
{
    bool far = !same_host && m->fabric > 0;
    double rate = far ? m->fabric : m->network / m->n_devices;
    return (rate > 0 ? bytes / rate : 0) + (far ? m->fabric_latency : m->latency);
}

/* F16 is exact on units for F16; more is rounded. Formats of few bits can be multiplied as integers. */
double wf_machine_rate(const wf_machine *m, enum wf_dtype t)
{
    double rate = m->ops[WF_ARITH_F32];
    if (t != WF_F32 || rate <= 0) rate = WF_MAX(rate, m->ops[WF_ARITH_F16]);
    return wf_dtypes[t].block > 1 ? WF_MAX(rate, m->ops[WF_ARITH_Q8]) : rate;
}

double wf_machine_power(const wf_machine *m)
{
    return m->power_limit > m->static_power ? m->power_limit - m->static_power : 0;
}
