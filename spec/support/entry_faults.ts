/**
 * Fails the spec for every fault at an entry (`lib/base/event_loop.ts`) that it does not expect: the gateway survives
 * them, and a silent log would hide them.
 */
import { subscribe } from "node:diagnostics_channel";
import { ENTRY_FAULTS, type EntryFault } from "../../lib/base/event_loop.ts";
import { onTestFinished } from "vitest";

/** One for the process, although vitest runs this file again for each file with specs. */
const own = globalThis as { expectedEntryFaults?: EntryFault[] | null };

if (own.expectedEntryFaults === undefined) {
  own.expectedEntryFaults = null;
  subscribe(ENTRY_FAULTS.name, (message) => {
    const fault = message as EntryFault;
    const expected = own.expectedEntryFaults ?? null;
    if (expected === null) throw fault.error;
    fault.isAnswered = true;
    expected.push(fault);
  });
}

/** Until the end of the test faults are expected; the list gets them. */
export function expectEntryFaults(): readonly EntryFault[] {
  const faults: EntryFault[] = (own.expectedEntryFaults = []);
  onTestFinished(() => {
    own.expectedEntryFaults = null;
  });
  return faults;
}
