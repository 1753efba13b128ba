package dev.loupe.cli;

import java.lang.reflect.Proxy;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Ctrl-C. During work that can end early with what it has, the first one asks it to; otherwise, and
 * at the second one, the program ends at once. Unfinished files are removed on the way out.
 *
 * <p>Java has no public way to hear a signal without ending; sun.misc.Signal, which the JDK keeps
 * for this, is reached by reflection, and where it is missing every Ctrl-C ends at once.
 */
final class Interrupt implements AutoCloseable {
  static final int EXIT_CODE = 130; // 128 + SIGINT, as shells have it

  private final AtomicInteger asked = new AtomicInteger();
  private final @Nullable Object before;

  /** From here to {@link #close} the first Ctrl-C only asks. */
  Interrupt() {
    before = handle(null);
  }

  boolean asked() {
    return asked.get() > 0;
  }

  private void hear() {
    if (asked.getAndIncrement() > 0) {
      System.exit(EXIT_CODE);
    }
  }

  @Override
  public void close() {
    if (before != null) {
      handle(before);
    }
  }

  /** Installs a handler, this object's own if null, and gives the one before it. */
  private @Nullable Object handle(@Nullable Object handler) {
    try {
      Class<?> signal = Class.forName("sun.misc.Signal");
      Class<?> handlerType = Class.forName("sun.misc.SignalHandler");
      Object own =
          Proxy.newProxyInstance(
              handlerType.getClassLoader(),
              new Class<?>[] {handlerType},
              (proxy, method, arguments) -> {
                hear();
                return null;
              });
      return signal
          .getMethod("handle", signal, handlerType)
          .invoke(
              null,
              signal.getConstructor(String.class).newInstance("INT"),
              handler == null ? own : handler);
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }
}
