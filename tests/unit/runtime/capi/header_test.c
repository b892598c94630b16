/* acc.h as C sees it: it compiles as C, and its initializers and functions agree. */
#include <acc/acc.h>
#include <string.h>

int acc_test_from_c(void);

int acc_test_from_c(void) {
  const acc_config by_macro = ACC_CONFIG_INIT;
  const acc_call call_by_macro = ACC_CALL_INIT;
  acc_config config;
  acc_call call;
  memset(&config, 0x55, sizeof config);
  memset(&call, 0x55, sizeof call);
  acc_config_init(&config, sizeof config);
  acc_call_init(&call, sizeof call);
  if (config.size != by_macro.size || config.backend != by_macro.backend ||
      config.check != by_macro.check || config.init_timeout_ms != by_macro.init_timeout_ms ||
      config.timeout_ms != by_macro.timeout_ms || config.name != by_macro.name)
    return 1;
  if (call.size != call_by_macro.size || call.timeout_ms != call_by_macro.timeout_ms ||
      call.stream != call_by_macro.stream)
    return 2;
  if (acc_all_reduce(NULL, NULL, NULL, 0, ACC_F32, ACC_SUM, NULL) != ACC_INVALID_ARGUMENT) return 3;
  if (strcmp(acc_last_error(), "comm is a null pointer") != 0) return 4;
  return acc_version() == ACC_VERSION ? 0 : 5;
}
