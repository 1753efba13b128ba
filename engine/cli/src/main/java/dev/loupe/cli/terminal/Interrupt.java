package dev.loupe.cli.terminal;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * The signals that end a program: SIGINT (Ctrl-C), SIGTERM (docker, systemd, timeout) and SIGHUP (a
 * terminal that is closed). Where work has something to keep, the first one asks it to end with
 * what it has; otherwise, and at a further Ctrl-C, the program ends at once. Unfinished files are
 * removed on the way out.
 *
 * <p>A further SIGTERM or SIGHUP changes nothing: programs send them twice, to a process and to its
 * group, and have SIGKILL for those that do not end.
 *
 * <p>Java has no public way to hear a signal without ending; sun.misc.Signal, which the JDK keeps
 * for this, is reached by reflection, and where it is missing every signal ends at once. So it does
 * where the system or the shell has a signal ignored: it stays ignored.
 */
public final class Interrupt implements AutoCloseable {
  private static final String CTRL_C = "INT";

  /** Names, and numbers, which POSIX fixes. */
  private static final Map<String, Integer> NUMBERS = Map.of("HUP", 1, CTRL_C, 2, "TERM", 15);

  /** The first that this process heard, 0 for none. */
  private static final AtomicInteger FIRST = new AtomicInteger();

  private final Terminal terminal;
  private final AtomicInteger asked = new AtomicInteger();
  private volatile boolean onlyAsk;
  private final Map<String, Object> before = new LinkedHashMap<>();

  public Interrupt(Terminal terminal) {
    this.terminal = terminal;
    for (String name : NUMBERS.keySet()) {
      Object handler = handle(name, null);
      if (handler != null) {
        before.put(name, handler);
      }
    }
  }

  /** What a command that was ended exits with: 128 and the signal's number, as shells have it. */
  public static int exitCode() {
    int first = FIRST.get();
    return 128 + (first == 0 ? 2 : first); // a child that the terminal's Ctrl-C reached first
  }

  /** From here to {@link #close} the first signal only asks. */
  public void onlyAsk() {
    onlyAsk = true;
  }

  public boolean asked() {
    return asked.get() > 0;
  }

  private void hear(String name) {
    FIRST.compareAndSet(0, NUMBERS.getOrDefault(name, 0));
    boolean again = asked.getAndIncrement() > 0;
    if (!onlyAsk || (again && name.equals(CTRL_C))) {
      if (terminal.errIsTerminal()) {
        terminal.say(""); // whatever stood on this line, the shell's prompt begins one
      }
      System.exit(exitCode());
    }
  }

  /** Who was asked to end keeps on hearing: what is saved after this must not be lost. */
  @Override
  public void close() {
    if (!asked()) {
      before.forEach(this::handle);
    }
  }

  /** Installs a handler, this object's own if null, and gives the one before it. */
  private @Nullable Object handle(String name, @Nullable Object handler) {
    try {
      Class<?> signal = Class.forName("sun.misc.Signal");
      Class<?> handlerType = Class.forName("sun.misc.SignalHandler");
      Object own =
          Proxy.newProxyInstance(
              handlerType.getClassLoader(),
              new Class<?>[] {handlerType},
              (proxy, method, arguments) -> {
                hear(name);
                return null;
              });
      Method handle = signal.getMethod("handle", signal, handlerType);
      return handle.invoke(
          null,
          signal.getConstructor(String.class).newInstance(name),
          handler == null ? own : handler);
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }
}
