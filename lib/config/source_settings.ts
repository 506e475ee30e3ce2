/**
 * The settings of a configuration whose CONFIG_FILE_PATH is a URL: what they need of each other, and their values.
 */
import { hasScheme, readValues, type Environment, type Flags, type ReadOf } from "./start_settings.ts";
import { messagesOf, type Rule } from "./settings_rules.ts";
import { SOURCE_TABLE } from "./settings_table.ts";
import type { SettingsRead, SourceSettings } from "./settings_types.ts";
import { sourceUrl, type SourceUrl } from "./source_url.ts";

type Read = ReadOf<typeof SOURCE_TABLE>;

/**
 * For commands, which name a file or a URL: other settings in the environment are ignored. Null: it is a file. `use`:
 * "none": no configuration from there comes into force.
 */
export function readSourceSettings(
  named: string,
  flags: Flags,
  environment: Environment,
  use: "configuration" | "none" = "configuration",
): SettingsRead<SourceSettings | null> {
  if (!hasScheme(named)) return { ok: true, settings: null };
  const issues: string[] = [];
  const values = readValues(SOURCE_TABLE, { ...flags, config: named }, environment, issues);
  issues.push(...sourceProblems(values, use));
  return issues.length > 0 ? { ok: false, issues } : { ok: true, settings: sourceIn(values) };
}

/** One sentence for each mistake. */
export function sourceProblems(values: Read, use: "configuration" | "none" = "configuration"): string[] {
  const { configPath: named, configKey: key, sourceTokenPath: token, sourceCaPath: ca } = values;
  const { sourceCertPath, sourceKeyPath, etcdUser: user, etcdPasswordPath: password, sourceReadOnly } = values;
  const url = named !== null && hasScheme(named) ? sourceUrl(named) : null;
  if (typeof url === "string") return [`CONFIG_FILE_PATH (--config): the URL ${url}`];
  const isEtcd = url !== null && isOfEtcd(url);
  const isHttp = url !== null && !isEtcd;
  const isSecure = url?.scheme === "https" || url?.scheme === "etcds";
  const of = (schemes: string) => `needs a CONFIG_FILE_PATH (--config) that starts with ${schemes}`;
  const rules: Rule[] = [
    [
      use === "configuration" && url !== null && !isSecure && !url.isLocal && key === null,
      `CONFIG_FILE_PATH (--config) starts with ${url?.scheme}://, and whoever is between could replace the ` +
        `configuration: use ${url?.scheme}s://, or sign it, and set CONFIG_PUBLIC_KEY`,
    ],
    [token !== null && !isHttp, `CONFIG_TOKEN_FILE ${of("https:// or http://")}`],
    [ca !== null && !isSecure, `CONFIG_CA_PATH ${of("https:// or etcds://")}`],
    [sourceCertPath !== null && !isSecure, `CONFIG_CERT_PATH ${of("https:// or etcds://")}`],
    [sourceCertPath !== null && sourceKeyPath === null, "CONFIG_CERT_PATH needs CONFIG_KEY_PATH"],
    [sourceKeyPath !== null && sourceCertPath === null, "CONFIG_KEY_PATH needs CONFIG_CERT_PATH"],
    [user !== null && !isEtcd, `ETCD_USER ${of("etcds:// or etcd://")}`],
    [user !== null && password === null, "ETCD_USER needs ETCD_PASSWORD_FILE"],
    [password !== null && user === null, "ETCD_PASSWORD_FILE needs ETCD_USER"],
    [sourceReadOnly === true && !isEtcd, `CONFIG_READ_ONLY ${of("etcds:// or etcd://")}`],
  ];
  return messagesOf(rules);
}

/** Of values without problems. Null: the configuration is in a file. */
export function sourceIn(values: Read): SourceSettings | null {
  const { configPath: named, etcdUser: name, etcdPasswordPath: passwordPath } = values;
  const url = named !== null && hasScheme(named) ? sourceUrl(named) : null;
  if (url === null || typeof url === "string") return null;
  return {
    url,
    pollMs: values.sourcePollS! * 1000,
    tokenPath: values.sourceTokenPath,
    caPath: values.sourceCaPath,
    certPath: values.sourceCertPath,
    keyPath: values.sourceKeyPath,
    user: name === null || passwordPath === null ? null : { name, passwordPath },
    isSigned: values.configKey !== null,
    isReadOnly: values.sourceReadOnly === true,
  };
}

export function isOfEtcd({ scheme }: SourceUrl): boolean {
  return scheme === "etcd" || scheme === "etcds";
}
