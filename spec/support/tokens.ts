/** Counts what somebody has to read of a source, whatever its layout: names, numbers and signs; comments are none. */
export function tokensOf(text: string): number {
  const code = text
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .replace(/^\s*\/\/.*$/gm, "")
    .replace(/\s\/\/ .*$/gm, "");
  return code.match(/[A-Za-z_#$][\w$]*|\d+|[^\s\w]/g)?.length ?? 0;
}
