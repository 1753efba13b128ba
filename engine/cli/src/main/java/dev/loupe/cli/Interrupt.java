package dev.loupe.cli;

import java.lang.reflect.Proxy;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Ctrl-C. Where work has something to keep, the first one asks it to end with what it has;
 * otherwise, and at the second one, the program ends at once. Unfinished files are removed on the
 * way out.
 *
 * <p>Java has no public way to hear a signal without ending; sun.misc.Signal, which the JDK keeps
 * for this, is reached by reflection, and where it is missing every Ctrl-C ends at once.
 */
final class Interrupt implements AutoCloseable {
  static final int EXIT_CODE = 130; // 128 + SIGINT, as shells have it

  private final Terminal terminal;
  private final AtomicInteger asked = new AtomicInteger();
  private volatile boolean onlyAsk;
  private final @Nullable Object before;

  Interrupt(Terminal terminal) {
    this.terminal = terminal;
    before = handle(null);
  }

  /** From here to {@link #close} the first Ctrl-C only asks. */
  void onlyAsk() {
    onlyAsk = true;
  }

  boolean asked() {
    return asked.get() > 0;
  }

  private void hear() {
    if (asked.getAndIncrement() > 0 || !onlyAsk) {
      if (terminal.errIsTerminal()) {
        terminal.say(""); // whatever stood on this line, the shell's prompt begins one
      }
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
