package interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The lines of interop/control.py: one JSON object each, read and written without a library. */
final class Lines {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final String text;
    private int at;

    private Lines(String text) {
        this.text = text;
    }

    // -- writing -----------------------------------------------------------------------------------------------

    /** Tell the runner. */
    static void say(Map<String, Object> line) {
        StringBuilder made = new StringBuilder();
        write(made, line);
        made.append('\n');
        synchronized (OUT) {
            OUT.append(made);
            OUT.flush();
        }
    }

    /** Tell the runner what happened. */
    static void fact(String name, Object... more) {
        say(map(map("fact", name), more));
    }

    /** A map of names and values in turns. */
    static Map<String, Object> map(Object... pairs) {
        return map(new LinkedHashMap<>(), pairs);
    }

    private static Map<String, Object> map(Map<String, Object> made, Object... pairs) {
        for (int i = 0; i < pairs.length; i += 2) {
            made.put((String) pairs[i], pairs[i + 1]);
        }
        return made;
    }

    private static void write(StringBuilder made, Object value) {
        if (value instanceof Map) {
            String between = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                made.append(between);
                quote(made, String.valueOf(entry.getKey()));
                made.append(": ");
                write(made, entry.getValue());
                between = ", ";
            }
            made.append(between.equals("{") ? "{}" : "}");
        } else if (value instanceof String) {
            quote(made, (String) value);
        } else {
            made.append(value); // null, a number or a truth value
        }
    }

    private static void quote(StringBuilder made, String value) {
        made.append('"');
        for (char one : value.toCharArray()) {
            if (one == '"' || one == '\\') {
                made.append('\\').append(one);
            } else if (one < ' ' || Character.isSurrogate(one)) {
                made.append(String.format("\\u%04x", (int) one));
            } else {
                made.append(one);
            }
        }
        made.append('"');
    }

    // -- reading -----------------------------------------------------------------------------------------------

    /** An order. What the runner writes is sound, so little is checked. */
    static Order read(String line) {
        return new Order((Map<?, ?>) new Lines(line).value());
    }

    private Object value() {
        switch (next()) {
            case '{':
                return object();
            case '[':
                return list();
            case '"':
                return string();
            default:
                return word();
        }
    }

    private char next() {
        while (Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return text.charAt(at);
    }

    private Map<String, Object> object() {
        Map<String, Object> made = new LinkedHashMap<>();
        at++;
        while (next() != '}') {
            String name = string();
            next();
            at++; // the colon
            made.put(name, value());
            if (next() == ',') {
                at++;
                next();
            }
        }
        at++;
        return made;
    }

    private List<Object> list() {
        List<Object> made = new ArrayList<>();
        at++;
        while (next() != ']') {
            made.add(value());
            if (next() == ',') {
                at++;
            }
        }
        at++;
        return made;
    }

    private String string() {
        StringBuilder made = new StringBuilder();
        for (at++; text.charAt(at) != '"'; at++) {
            char one = text.charAt(at);
            if (one == '\\') {
                one = text.charAt(++at);
                if (one == 'u') {
                    one = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
                    at += 4;
                } else if ("bfnrt".indexOf(one) >= 0) {
                    one = "\b\f\n\r\t".charAt("bfnrt".indexOf(one));
                }
            }
            made.append(one);
        }
        at++;
        return made.toString();
    }

    private Object word() {
        int start = at;
        while (at < text.length() && ",]} ".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String word = text.substring(start, at);
        switch (word) {
            case "null":
                return null;
            case "true":
            case "false":
                return word.equals("true");
            default:
                return Long.parseLong(word);
        }
    }

    /** An object that was read. A name that it lacks is null, 0 or false. */
    static final class Order {
        private final Map<?, ?> values;

        Order(Map<?, ?> values) {
            this.values = values;
        }

        String text(String name) {
            return (String) values.get(name);
        }

        long number(String name) {
            Object value = values.get(name);
            return value == null ? 0 : (Long) value;
        }

        boolean truth(String name) {
            return Boolean.TRUE.equals(values.get(name));
        }

        Order part(String name) {
            Object value = values.get(name);
            return value == null ? null : new Order((Map<?, ?>) value);
        }

        List<Order> parts(String name) {
            List<Order> made = new ArrayList<>();
            for (Object one : (List<?>) values.get(name)) {
                made.add(new Order((Map<?, ?>) one));
            }
            return made;
        }
    }
}
