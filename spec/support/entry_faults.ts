/** Fails the spec for every fault at an entry (`lib/base/event_loop.ts`) that it does not expect: the gateway survives them, and a silent log would hide them. */
import { subscribe } from "node:diagnostics_channel";
import { ENTRY_FAULTS, type EntryFault } from "../../lib/base/event_loop.ts";
import { onTestFinished } from "vitest";

let expected: EntryFault[] | null = null;

subscribe(ENTRY_FAULTS.name, (message) => {
  const fault = message as EntryFault;
  if (expected === null) throw fault.error;
  fault.isAnswered = true;
  expected.push(fault);
});

/** Until the end of the test faults are expected; the list gets them. */
export function expectEntryFaults(): readonly EntryFault[] {
  const faults: EntryFault[] = (expected = []);
  onTestFinished(() => {
    expected = null;
  });
  return faults;
}
