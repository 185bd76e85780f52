/* fewer: of many inputs that go the same ways and differ in their numbers alone, a test takes one of so many under the
 * address sanitizer, which looks at how memory is accessed; other builds take all. */
#ifndef WF_TEST_FEWER_H
#define WF_TEST_FEWER_H

#ifdef __SANITIZE_ADDRESS__
#define ONE_OF(n) (n)
#else
#define ONE_OF(n) 1
#endif

#endif
