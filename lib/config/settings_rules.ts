/**
 * Rules that settings keep together.
 */
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

/** Null: the port is not opened. */
type NamedPort = readonly [name: string, port: number | null];

/** Ports that are named twice; 0 is any free port. */
export function portProblems(ports: readonly NamedPort[]): string[] {
  return ports.flatMap(([name, port], i) => {
    const other = ports.slice(0, i).find(([, earlier]) => earlier === port);
    return other !== undefined && port !== 0 && port !== null
      ? `${name}: port ${port} is already used by ${other[0]}`
      : [];
  });
}
