package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;

/**
 * Refuses what a kernel would read or write wrongly, before it is launched.
 *
 * @param operation what is asked for, as its messages begin
 * @param gpu where all buffers must be
 */
public record BufferCheck(String operation, Gpu gpu) {

  /** Passes a size from {@code least} to {@code most}. */
  public void size(String name, long value, long least, long most) {
    if (value < least || value > most) {
      throw new IllegalArgumentException(
          "%s: %s is %d, not between %d and %d".formatted(operation, name, value, least, most));
    }
  }

  /** Passes a live buffer of this GPU with at least {@code elements} of {@code element}. */
  public void holds(String name, DeviceBuffer buffer, Element element, long elements) {
    notNull(name, buffer);
    if (buffer.element() != element) {
      throw new IllegalArgumentException(
          "%s: %s holds %s, not %s".formatted(operation, name, buffer.element(), element));
    }
    holds(name, buffer, elements);
  }

  /** Passes a live buffer of this GPU with at least {@code elements} that starts at 16 bytes. */
  public void holds(String name, DeviceBuffer buffer, long elements) {
    notNull(name, buffer);
    if (!buffer.isLive()) {
      throw new IllegalArgumentException("%s: %s is closed".formatted(operation, name));
    }
    if (buffer.gpu() != gpu) {
      throw new IllegalArgumentException("%s: %s is on another GPU".formatted(operation, name));
    }
    if (buffer.elements() < elements) {
      throw new IllegalArgumentException(
          "%s: %s has %d elements, needs %d"
              .formatted(operation, name, buffer.elements(), elements));
    }
    if (buffer.address() % 16 != 0) {
      throw new IllegalArgumentException(
          "%s: %s starts at an address that is no multiple of 16".formatted(operation, name));
    }
  }

  private void notNull(String name, DeviceBuffer buffer) {
    if (buffer == null) { // from callers that no checker looks at
      throw new IllegalArgumentException("%s: %s is null".formatted(operation, name));
    }
  }
}
