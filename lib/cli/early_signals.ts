/**
 * Handles signals from the first moment of a program that serves, before its code is loaded: Node's defaults would end
 * it at SIGHUP, open a debugger's port at SIGUSR1, and lose SIGTERM where it is the first process of a container.
 */
const SERVING = ["run", "demo", "manager"];

/** Nothing has been read yet that SIGHUP or SIGUSR1 could read or open again. */
const nothing = () => {};
/** Nothing is in flight yet. */
const end = () => process.exit(0);

/** `words`: the command line after the program name. */
export function handleEarlySignals([word = "run"]: readonly string[]): void {
  if (!word.startsWith("-") && !SERVING.includes(word)) return;
  process.on("SIGHUP", nothing).on("SIGUSR1", nothing).on("SIGTERM", end).on("SIGINT", end);
}

/** The program handles SIGTERM and SIGINT itself from now on. */
export function takeOverSignals(): void {
  process.off("SIGTERM", end).off("SIGINT", end);
}
