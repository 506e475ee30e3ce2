/**
 * Hands a test that is made already to the form for tests.
 */
import type { Frame } from "./page.ts";

/** Where it is left. */
export const NEW_TEST = "#/add/test";

/** It may have secrets: they are in no address. */
export function openNewTest(frame: Frame, test: unknown): void {
  frame.texts.set(NEW_TEST, { value: JSON.stringify(test) });
  frame.goTo(NEW_TEST);
}
