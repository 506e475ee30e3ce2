/** Headers of the PROXY protocol, as a proxy sends them. */

/** Of version 2: the byte of version and command, that of the family, and what follows. */
export function v2(command: number, family: number, ...parts: readonly Buffer[]): Buffer {
  const rest = Buffer.concat(parts);
  const fixed = Buffer.from([
    ...Buffer.from("\r\n\r\n\0\r\nQUIT\n"),
    command,
    family,
    rest.length >> 8,
    rest.length & 255,
  ]);
  return Buffer.concat([fixed, rest]);
}
