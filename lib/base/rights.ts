/**
 * Gives up rights of Node's permission model, in this thread and in those that it starts later on. Node has no list of
 * what flags grant.
 */

import { missingPermission } from "./errors.ts";

/** `path`: as the flag has it, for Node gives up nothing else. */
export interface Right {
  readonly scope: string;
  readonly path?: string;
}

/** `process.permission`; undefined without the model. Before Node 24.21 nothing can be given up. */
export interface Permission {
  has(scope: string, path?: string): boolean;
  drop?(scope: string, path?: string): void;
}

/** For the threads that this one starts, which have all rights of the flags. */
let forThreads: readonly Right[] = [];

export function rightsOfThreads(): readonly Right[] {
  return forThreads;
}

/**
 * Throws for a right that is still there: Node says nothing of a name that it does not know, nor of a path within a
 * granted folder.
 */
export function giveUp(rights: readonly Right[], permission = process.permission as Permission): void {
  missingPermission.since =
    "; SEAL has given up what the configuration of the start did not need: restart with the new one";
  for (const { scope, path } of rights) permission.drop!(scope, path);
  const left = rights.find(({ scope, path }) => permission.has(scope, path?.replace(/\*$/, "x")));
  if (left !== undefined)
    throw new Error(`Node does not give up ${[left.scope, left.path ?? []].flat().join(" for ")}`);
}

/** The same, for a program whose threads give up these rights and that of starting a thread. */
export function giveUpInAll(rights: readonly Right[], permission?: Permission): void {
  giveUp(rights, permission);
  forThreads = [...rights, { scope: "worker" }];
}
