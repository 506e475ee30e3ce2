/**
 * The interface of `errors` in a configuration: bodies in place of the problem documents of the gateway's own errors.
 */
import type { HeaderList } from "./headers.ts";

/** An error as it is named. */
export interface ErrorText {
  readonly code: string;
  readonly status: number;
  readonly title: string;
}

/** A `Reply`. */
export interface OwnReply {
  /** Of the error. */
  readonly status: number;
  /** The status that is sent; default: that of the error. */
  readonly sentAs?: number;
  readonly headers: HeaderList;
  readonly body: Buffer | null;
}

/**
 * Of one request, or of all that could not be read; null: the error is sent as it is. `options`: of a problem document.
 */
export type OwnBodyOf = (
  error: ErrorText,
  id: string,
  options: { readonly detail?: string; readonly headers?: HeaderList },
) => OwnReply | null;
