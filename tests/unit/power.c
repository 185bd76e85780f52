/* power: readers of power on files and a library that the test makes: counters that start again, sources that only tell
 * watts, and machines that tell nothing. */
#include "lab/power.h"
#include "support/suite.h"

#include <sys/stat.h>

#define GPU "0000:19:00.0"

static char root[64], library[512];
static uint64_t now_ns;

static uint64_t fake_now(void)
{
    return now_ns;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(full, 0755);
    }
    write_text(full, text);
}

static void clear(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/sys", root);
    assert_int_equal(system(command), 0);
}

static wf_power *open_of(enum weft_device_type type, const char *pci)
{
    wf_dev dev = {.info = {.type = type}};
    wf_copy(dev.pci, sizeof dev.pci, pci);
    return wf_power_open(&dev);
}

static void is_near(double x, double wanted)
{
    if (x < wanted - 1e-6 || x > wanted + 1e-6) fail_msg("%.9g where %.9g was wanted", x, wanted);
}

static void reads(wf_power *p, double joules, double seconds)
{
    wf_power_reading r;
    assert_true(wf_power_read(p, &r));
    is_near(r.joules, joules);
    is_near(r.seconds, seconds);
}

static void use(const char *nvml)
{
    now_ns = 1000000000;
    wf_power_configure(
        &(wf_power_config){.root = root, .nvml = nvml ? nvml : "/absent/libnvidia-ml.so.1", .now_ns = fake_now});
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

static void test_nothing(void **state)
{
    wf_power_reading r;
    use(NULL);
    assert_null(open_of(WEFT_DEVICE_CPU, ""));
    assert_null(open_of(WEFT_DEVICE_GPU, GPU));
    assert_null(open_of(WEFT_DEVICE_GPU, ""));
    assert_null(open_of(WEFT_DEVICE_OTHER, ""));
    assert_false(wf_power_read(NULL, &r));
    assert_string_equal(wf_power_source(NULL), "not readable");
    is_near(wf_power_limit(NULL), 0);
    wf_power_close(NULL);
}

/* Packages and memory, not what is within a package; one counter starts again. */
static void test_powercap(void **state)
{
    use(NULL);
    put("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "9000000\n");
    put("/sys/class/powercap/intel-rapl:0/max_energy_range_uj", "10000000\n");
    put("/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "150000000\n");
    put("/sys/class/powercap/intel-rapl:0:0/name", "core\n");
    put("/sys/class/powercap/intel-rapl:0:0/energy_uj", "5000000\n");
    put("/sys/class/powercap/intel-rapl:0:1/name", "dram\n");
    put("/sys/class/powercap/intel-rapl:0:1/energy_uj", "100\n");
    wf_power *p = open_of(WEFT_DEVICE_CPU, "");
    assert_non_null(p);
    assert_string_equal(wf_power_source(p), "powercap");
    is_near(wf_power_limit(p), 150);
    now_ns += 500000000;
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "500000\n");
    put("/sys/class/powercap/intel-rapl:0:0/energy_uj", "9000000\n");
    put("/sys/class/powercap/intel-rapl:0:1/energy_uj", "250100\n");
    reads(p, 1.5, 0.5);
    reads(p, 1.5, 0.5);
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "no number\n");
    assert_false(wf_power_read(p, &(wf_power_reading){0}));
    wf_power_close(p);
    assert_null(open_of(WEFT_DEVICE_GPU, ""));
    clear();
}

static void test_hwmon_counter(void **state)
{
    use(NULL);
    put("/sys/bus/pci/devices/" GPU "/hwmon/hwmon3/energy1_input", "1000000\n");
    put("/sys/bus/pci/devices/" GPU "/hwmon/hwmon3/power1_max", "120000000\n");
    wf_power *p = open_of(WEFT_DEVICE_GPU, GPU);
    assert_non_null(p);
    assert_string_equal(wf_power_source(p), "hwmon");
    is_near(wf_power_limit(p), 120);
    now_ns += 2000000000;
    put("/sys/bus/pci/devices/" GPU "/hwmon/hwmon3/energy1_input", "201000000\n");
    reads(p, 200, 2);
    wf_power_close(p);
    assert_null(open_of(WEFT_DEVICE_GPU, "0000:1a:00.0")); /* another one */
    clear();
}

/* Watts are summed up over the readings. Without an address it must be the only device. */
static void test_hwmon_watts(void **state)
{
    use(NULL);
    put("/sys/class/drm/card0/device/hwmon/hwmon1/power1_average", "100000000\n");
    put("/sys/class/drm/card0/device/hwmon/hwmon1/power1_cap", "300000000\n");
    wf_power *p = open_of(WEFT_DEVICE_GPU, "");
    assert_non_null(p);
    is_near(wf_power_limit(p), 300);
    now_ns += 1000000000;
    put("/sys/class/drm/card0/device/hwmon/hwmon1/power1_average", "200000000\n");
    reads(p, 150, 1);
    now_ns += 2000000000;
    reads(p, 550, 3);
    wf_power_close(p);
    put("/sys/class/drm/card1/device/hwmon/hwmon2/power1_average", "100000000\n");
    assert_null(open_of(WEFT_DEVICE_GPU, ""));
    clear();
}

/* ---- a library --------------------------------------------------------------------------------------------------- */

static void say_nvml(const char *energy, const char *milliwatts)
{
    put("/nvml/energy", energy);
    put("/nvml/milliwatts", milliwatts);
}

static int is_open(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/nvml/open", root);
    return !access(path, F_OK);
}

static void test_nvml(void **state)
{
    use(library);
    say_nvml("5000", "1");
    wf_power *p = open_of(WEFT_DEVICE_GPU, GPU);
    assert_non_null(p);
    assert_string_equal(wf_power_source(p), "NVML");
    is_near(wf_power_limit(p), 700);
    assert_true(is_open());
    now_ns += 1000000000;
    say_nvml("355000", "1");
    reads(p, 350, 1);
    wf_power_close(p);
    assert_false(is_open());
    assert_null(open_of(WEFT_DEVICE_GPU, "0000:1a:00.0"));
    assert_null(open_of(WEFT_DEVICE_CPU, ""));
    assert_false(is_open());
    p = open_of(WEFT_DEVICE_GPU, ""); /* it has one */
    assert_non_null(p);
    wf_power_close(p);
}

/* Older devices have no counter. */
static void test_nvml_watts(void **state)
{
    use(library);
    say_nvml("none", "300000");
    wf_power *p = open_of(WEFT_DEVICE_GPU, GPU);
    assert_non_null(p);
    now_ns += 1000000000;
    say_nvml("none", "500000");
    reads(p, 400, 1);
    say_nvml("none", "none");
    assert_false(wf_power_read(p, &(wf_power_reading){0}));
    wf_power_close(p);
}

static int setup(void **state)
{
    snprintf(library, sizeof library, "%s", getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "/absent");
    snprintf(root, sizeof root, "/tmp/weft-power-XXXXXX");
    if (!mkdtemp(root)) return -1;
    put("/nvml/of", GPU);
    char state_folder[128];
    snprintf(state_folder, sizeof state_folder, "%s/nvml", root);
    return setenv("FAKE_NVML_STATE", state_folder, 1);
}

static int teardown(void **state)
{
    wf_power_configure(NULL);
    return remove_folder_at(root);
}

SUITE(power, setup, teardown, CASE(test_nothing), CASE(test_powercap), CASE(test_hwmon_counter), CASE(test_hwmon_watts),
      CASE(test_nvml), CASE(test_nvml_watts))
