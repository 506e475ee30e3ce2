/**
 * Rules that settings keep together.
 */
import type { Settings } from "./settings_types.ts";

/** Whether the rule is violated, and the message. */
export type Rule = readonly [isBroken: boolean, message: string];

export const messagesOf = (rules: readonly Rule[]) => rules.flatMap(([isBroken, message]) => (isBroken ? message : []));

type Certificate = { readonly serverCertPath: string | null; readonly serverKeyPath: string | null };

export function certificateRules({ serverCertPath: cert, serverKeyPath: key }: Certificate): Rule[] {
  return [
    [cert !== null && key === null, "SERVER_CERT_PATH needs SERVER_KEY_PATH"],
    [key !== null && cert === null, "SERVER_KEY_PATH needs SERVER_CERT_PATH"],
  ];
}

/** Ports that are named twice; 0 is any free port. `hasHttps`: whether HTTPS_PORT is opened. */
export function portProblems(settings: Settings, hasHttps: boolean): string[] {
  const { httpPort, httpsPort, admin, probe, manager } = settings;
  const ports = [
    ["HTTP_PORT", httpPort],
    ["HTTPS_PORT", hasHttps ? httpsPort : null],
    ["ADMIN_PORT", admin?.port],
    ["PROBE_PORT", probe?.port],
    ["MANAGER_PORT", manager?.port],
  ] as const;
  return ports.flatMap(([name, port], i) => {
    const other = ports.slice(0, i).find(([, earlier]) => earlier === port);
    return other !== undefined && port ? `${name}: port ${port} is already used by ${other[0]}` : [];
  });
}
