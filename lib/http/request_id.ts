/**
 * Ids of requests: those that trusted proxies may give in X-Request-Id, and those that the gateway makes.
 */
export const REQUEST_ID = /^[\w.:/+=@-]{1,128}$/;
